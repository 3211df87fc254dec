#!/bin/sh
# Put the kernel of Debian's cloud images where the tests look for it, without installing it: an
# installed one would be booted next. Needs root for the folder, and lists from apt-get update.
set -eu
folder=/var/cache/serialwatch-tests
package=$(apt-cache depends --important linux-image-cloud-amd64 | sed -n 's/.*Depends: //p' | head -n 1)
if [ -z "$package" ]; then
	echo "apt knows no linux-image-cloud-amd64: the tests with a real Linux will be skipped" >&2
	exit 0
fi
[ ! -e "$folder/vmlinuz-${package#linux-image-}" ] || exit 0
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT
(cd "$away" && apt-get download -qq -o APT::Sandbox::User=root "$package" && dpkg-deb -x ./*.deb .)
mkdir -p "$folder"
install -m 644 "$away"/boot/vmlinuz-* "$folder"
