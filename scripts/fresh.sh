#!/usr/bin/env bash
# Tries the README on a bare Debian: creates one in a folder, without a container
# engine, clones the committed tree into it and runs commands there.
#
#   scripts/fresh.sh RELEASE          runs `make demo` and `make test`
#   scripts/fresh.sh RELEASE CMD...   runs CMD instead
#
# RELEASE is bookworm, trixie or sid. Needs root and debootstrap. The new system
# has only what the README assumes: git, make, and the host's Go.
# Packages come from the host's mirror (or DEBIAN_MIRROR) and modules from its
# GOPROXY. FRESH_DIR (/var/tmp/cutroom-fresh) keeps the base system as a tar
# file, so that a second run needs no debootstrap. The new system is always
# removed when the command ends.
#
# FRESH_PACKAGES lists packages to install before the command; they are kept in a
# tar file of their own for a month. FRESH_FOLDERS lists folders of the host that
# the command may read under their own paths. It gets the variables CUTROOM_*.
set -euo pipefail

repo=$(cd "$(dirname "$0")/.." && pwd)
cache=${FRESH_DIR:-/var/tmp/cutroom-fresh}
release=${1-}
case $release in
bookworm | trixie | sid) shift ;;
*)
	sed -n '2,17s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
[ $# -gt 0 ] || set -- sh -ec 'make demo; make test'

command -v debootstrap >/dev/null || {
	echo "fresh.sh: debootstrap is missing: apt-get install debootstrap" >&2
	exit 1
}

step() { printf 'fresh.sh: %s\n' "$*" >&2; }

# repository prints the address of the host's mirror of a repository, or Debian's own.
repository() {
	local host
	host=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep "/$1/\$" | head -n 1) || true
	echo "${host:-http://deb.debian.org/$1/}"
}

# base creates the tar file of the release: a minimal Debian with git and make.
base() {
	local root=$1/base mirror security
	mirror=${DEBIAN_MIRROR:-$(repository debian)} security=$(repository debian-security)
	step "making $release from $mirror"
	eval "$(apt-config shell http_proxy Acquire::http::Proxy)"
	http_proxy=${http_proxy-} debootstrap --variant=minbase --include=ca-certificates,git,make "$release" "$root" "$mirror" >"$1/debootstrap.log" 2>&1 || {
		tail -n 20 "$1/debootstrap.log" >&2
		return 1
	}
	echo "127.0.0.1 localhost" >"$root/etc/hosts"
	{
		echo "deb $mirror $release main"
		[ "$release" = sid ] || printf 'deb %s %s main\n' "$mirror" "$release-updates" "$security" "$release-security"
	} >"$root/etc/apt/sources.list"
	apt-config dump | grep -E '^Acquire::(https?|Check-[A-Za-z-]+|Retries)\b' >"$root/etc/apt/apt.conf.d/00host" || true
	rm -f "$root"/var/cache/apt/archives/*.deb
	tar -C "$root" -cf "$1/base.tar" .
	mv "$1/base.tar" "$cache/$release.tar"
	rm -rf "$root"
}

# installed creates the tar file of the release with the packages, and leaves its contents in the folder root.
installed() {
	local root=$1/installed
	step "installing $FRESH_PACKAGES on $release"
	unpack "$cache/$release.tar" "$root"
	chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "${proxies[@]}" sh -ec '
		apt-get update -qq
		apt-get install -y -qq --no-install-recommends "$@"
		apt-get clean' sh $FRESH_PACKAGES >"$1/install.log" 2>&1 || {
		tail -n 20 "$1/install.log" >&2
		return 1
	}
	tar -C "$root" -cf "$1/installed.tar" .
	mv "$1/installed.tar" "$2"
	mv "$root" "$1/root"
}

# unpack extracts a system's tar file. The system gets the host's name servers and certificates, because the
# host's mirror or module proxy may use a private one.
unpack() {
	mkdir "$2"
	tar -C "$2" -xf "$1"
	cp -L /etc/resolv.conf "$2/etc/resolv.conf"
	cp -L "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$2/etc/ssl/certs/ca-certificates.crt"
}

proxies=()
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
	[ -z "${!name-}" ] || proxies+=("$name=${!name}")
done

mkdir -p "$cache"
work=$(mktemp -d "$cache/$release.XXXXXX")
machine=
finish() {
	if [ -n "$machine" ] && kill -KILL "$machine" 2>/dev/null; then sleep 1; fi
	rm -rf --one-file-system "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Two runs that start at the same time make the base only once.
exec 9>"$cache/$release.lock"
flock 9
[ -f "$cache/$release.tar" ] || base "$work"
exec 9>&-
system=$cache/$release.tar
if [ -n "${FRESH_PACKAGES-}" ]; then
	system=$cache/$release-$(echo "$FRESH_PACKAGES" | sha256sum | cut -c 1-8).tar
	find "$system" -mtime +30 -delete 2>/dev/null || true
	[ -f "$system" ] || installed "$work" "$system"
fi
root=$work/root
[ -d "$root" ] || unpack "$system" "$root"
git clone -q --no-hardlinks "$repo" "$root/root/cutroom"
step "$release with cutroom at $(git -C "$root/root/cutroom" log -1 --format='%h %s')"

environment=(HOME=/root LANG=C.UTF-8 "TERM=${TERM-dumb}" PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
for name in GOPROXY GOPRIVATE GONOPROXY GOSUMDB GONOSUMDB GOINSECURE; do
	environment+=("$name=$(go env "$name")")
done
environment+=("${proxies[@]}")
for name in ${!CUTROOM_*}; do
	environment+=("$name=${!name}")
done

# Mounts and processes have namespaces of their own, which end with the command. pivot_root makes the
# folder the root, because a chroot does not allow the user namespaces in which the service confines ffmpeg.
export root goroot folders=${FRESH_FOLDERS-}
goroot=$(go env GOROOT)
set -m # so that a signal to this script ends the command at once
unshare --mount --pid --fork --kill-child --propagation private bash -ec '
	mount --bind "$root" "$root"
	cd "$root"
	mkdir -p usr/local/go mnt/host
	mount -t proc proc proc
	mount --rbind /sys sys
	mount --rbind /dev dev
	mount --bind -o ro "$goroot" usr/local/go
	for folder in $folders; do
		mkdir -p ".$folder"
		mount --bind -o ro "$folder" ".$folder"
	done
	pivot_root . mnt/host
	cd /root/cutroom
	umount -l /mnt/host
	env -i "$@" || exit' fresh "${environment[@]}" "$@" &
machine=$!
wait "$machine" || exit
machine=
