#!/usr/bin/env bash
# Install dist/*.whl into an empty environment; run the tests and the demo against that, not against
# the checkout.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT

"${PYTHON:-python3}" -m venv "$away/venv"
"$away/venv/bin/pip" install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
"$away/venv/bin/pip" install --quiet --disable-pip-version-check "$top"/dist/*.whl
(cd "$away" && PATH="$away/venv/bin:$PATH" serialwatch demo --once)
(cd "$top" && "$away/venv/bin/pip" install --quiet --disable-pip-version-check --group dev)
cp -r "$top/tests" "$top/pyproject.toml" "$away/"
# Of thousands of damaged logs each is read as in the checkout: that is not tried twice.
cd "$away" && PATH="$away/venv/bin:$PATH" "$away/venv/bin/pytest" -n 2 --dist loadfile \
	--ignore tests/test_disguises.py
