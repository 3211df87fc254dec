#!/bin/sh
# Make the disk of the lab's PC in FOLDER: Debian, and the libraries of serialwatch in
# /opt/serialwatch from the wheels in FOLDER/wheels. Needs root, and Debian's packages.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
root=$folder/root

modules=/lib/modules/*/kernel
mmdebstrap --quiet --mode=root --variant=minbase \
	--aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Languages "none"' \
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--dpkgopt="path-exclude=$modules/sound/*" \
	--dpkgopt="path-exclude=$modules/drivers/gpu/*" \
	--dpkgopt="path-exclude=$modules/drivers/infiniband/*" \
	--dpkgopt="path-exclude=$modules/drivers/media/*" \
	--dpkgopt="path-exclude=$modules/drivers/net/*" \
	--dpkgopt="path-exclude=$modules/drivers/scsi/*" \
	--include=systemd,systemd-sysv,udev,kmod,linux-image-amd64,initramfs-tools \
	--include=lz4,procps,python3,python3-venv,strace,sudo \
	--essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d"
		mkdir -p "$1/usr/share/initramfs-tools/modules.d"
		printf "MODULES=list\nCOMPRESS=lz4\n" >"$1/etc/initramfs-tools/conf.d/lab"
		printf "virtio_pci\nvirtio_blk\next4\n" >"$1/usr/share/initramfs-tools/modules.d/lab"' \
	bookworm "$root" /etc/apt/sources.list.d/debian.sources

cp -r "$folder/wheels" "$root/tmp/wheels"
chroot "$root" python3 -m venv /opt/serialwatch
chroot "$root" /opt/serialwatch/bin/pip --isolated install --quiet --no-index \
	--disable-pip-version-check --find-links /tmp/wheels --requirement /tmp/wheels/requirements.txt
rm -r "$root/tmp/wheels"

echo serialwatch-lab >"$root/etc/hostname"
echo '127.0.0.1 localhost serialwatch-lab' >"$root/etc/hosts"
: >"$root/etc/machine-id" # systemd makes one at the first boot
install -m 644 "$here/guest/lab-agent.service" "$root/etc/systemd/system/"
install -m 755 "$here/guest/lab_agent.py" "$root/usr/local/sbin/lab_agent.py"
chroot "$root" systemctl --quiet enable lab-agent.service
# Nothing of these has to do with the bench, and each costs a second of an emulated boot.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
	e2scrub_reap.service fstrim.timer getty@tty1.service serial-getty@ttyS0.service \
	systemd-logind.service dev-hugepages.mount dev-mqueue.mount modprobe@configfs.service \
	modprobe@dm_mod.service modprobe@drm.service modprobe@efi_pstore.service \
	modprobe@fuse.service modprobe@loop.service; do
	ln -s /dev/null "$root/etc/systemd/system/$unit"
done
for user in viewer operator outsider; do
	chroot "$root" useradd --create-home "lab-$user"
done

cp "$root"/boot/vmlinuz-* "$folder/vmlinuz"
cp "$root"/boot/initrd.img-* "$folder/initrd"
mke2fs -q -t ext4 -O ^metadata_csum -d "$root" "$folder/disk" 2G
rm -r "$root"
