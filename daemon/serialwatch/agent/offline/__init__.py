"""The analyst that needs no model: it reads, reasons and concludes."""
