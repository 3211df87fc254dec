#!/bin/sh
# Follow the README on the lab's disk as somebody at the PC would, before its first boot: the steps
# run in a chroot at the speed of this machine. Needs root and a loop device.
#
#     install.sh DISK CHECKOUT STEPS
#
# CHECKOUT (a folder) becomes /root/serialwatch on the disk, STEPS is a shell script that runs there.
set -eu
disk=$1
checkout=$2
steps=$3
if [ "${LAB_MOUNTS:-}" != own ]; then
	LAB_MOUNTS=own exec unshare --mount --uts "$0" "$@" # nothing is left mounted
fi
hostname serialwatch-lab # which sudo looks up
root=$(mktemp -d)
trap 'umount -R -l "$root" 2>/dev/null || true; rmdir "$root"' EXIT
mount -o loop "$disk" "$root"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
cp -r "$checkout" "$root/root/serialwatch"
cp "$steps" "$root/root/steps"
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root USER=lab-operator \
	chroot "$root" sh -exc 'cd /root/serialwatch && . /root/steps'
umount -R "$root"
