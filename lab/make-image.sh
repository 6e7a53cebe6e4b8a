#!/bin/sh
# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Makes disk, kernel and initrd of a node in $WORK from Debian's packages: no partition table, no boot loader.
# Needs root: file owners in the disk are real. $WORK/key.pub is the only way in; $WORK/packages names more packages.
set -eu
release=$1
cd "$WORK"

packages=systemd,systemd-sysv,udev,dbus,openssh-server,python3,python3-psutil,python3-yaml,iproute2,procps,kmod
packages=$packages,util-linux,e2fsprogs,busybox-static,podman,crun
# Rootless Podman: newuidmap and newgidmap, and a user manager with a bus for its scopes.
packages=$packages,uidmap,libpam-systemd,dbus-user-session
[ ! -f packages ] || packages=$packages,$(cat packages)
mkdir tree kernel debs initrd
# The kernel is unpacked, never installed: its scripts would make an initrd of 15 MB. mmdebstrap lends its apt for it.
# From Debian 14 on it is split: linux-image-VERSION depends on linux-binary-, linux-modules- and linux-base-VERSION.
# A mirror may be a snapshot, whose Release files are past their date; their signature counts nonetheless.
# shellcheck disable=SC2016 # the hook's shell is to expand these
mmdebstrap --quiet --variant=minbase --include="$packages" --aptopt='Acquire::Check-Valid-Until "false"' --customize-hook='
    cd "$WORK/debs" && export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
    kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n "s/.*Depends: \(linux-image-[0-9][^ ]*\)/\1/p" | head -n 1)
    parts=$(apt-cache depends "$kernel" | sed -n "s/.*Depends: \(linux-[a-z]*-[0-9][^ ]*\)/\1/p")
    apt-get --quiet --quiet -o APT::Sandbox::User=root download "$kernel" $parts
    ' "$release" root.tar ${MIRROR:+"$MIRROR"}
tar xf root.tar -C tree --exclude='./dev/*'
rm root.tar
for deb in debs/*.deb; do
    dpkg-deb -x "$deb" kernel
done
# Debian 12 has the modules in /lib, later ones in /usr/lib; vmlinuz is in /boot, from Debian 14 on beside the modules.
find kernel -name 'vmlinuz*' -type f -exec mv {} vmlinuz \;
modules=$(find kernel -path '*lib/modules' -type d)
version=$(ls "$modules")
# In Debian 11 /lib may be a folder; in later releases it is a link to /usr/lib.
mkdir -p tree/lib/modules
cp -a "$modules/$version" tree/lib/modules/
chroot tree /sbin/depmod "$version"

# virtio_ring comes before virtio: insmod does not look for what a module needs.
mkdir -p initrd/bin initrd/modules
cp tree/bin/busybox initrd/bin/
for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk; do
    find "$modules" -name "$module.ko*" -exec cp {} initrd/modules/ \;
done
find initrd/modules -name '*.xz' -exec tree/bin/busybox unxz {} +
cat >initrd/init <<'INIT'
#!/bin/busybox sh
/bin/busybox mkdir -p /dev /new
/bin/busybox mount -t devtmpfs dev /dev
for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk; do
    [ -f /modules/$module.ko ] && /bin/busybox insmod /modules/$module.ko
done
/bin/busybox mount -t ext4 /dev/vda /new
/bin/busybox mount --move /dev /new/dev
exec /bin/busybox switch_root /new /sbin/init
INIT
chmod 755 initrd/init
(cd initrd && find . | ../tree/bin/busybox cpio -o -H newc 2>/dev/null | gzip -1 >../initrd.gz)

# Each Python that starts takes what another one compiled.
mkdir -p tree/var/cache/lab-compiled/kept
cp node_compiled.py tree/usr/lib/python3/dist-packages/lab_compiled.py
echo 'import lab_compiled' >tree/usr/lib/python3/dist-packages/lab-compiled.pth
chroot tree /usr/bin/python3 -m compileall -q /usr/lib/python3/dist-packages/lab_compiled.py

mkdir -p tree/root/.ssh tree/etc/systemd/network tree/etc/systemd/journald.conf.d
cp key.pub tree/root/.ssh/authorized_keys
chmod 700 tree/root/.ssh
chmod 600 tree/root/.ssh/authorized_keys
echo corral-node >tree/etc/hostname
printf '127.0.0.1 localhost\n127.0.1.1 corral-node\n' >tree/etc/hosts
: >tree/etc/resolv.conf
printf 'PermitRootLogin prohibit-password\nUseDNS no\nPasswordAuthentication no\n' >>tree/etc/ssh/sshd_config
printf '[Journal]\nStorage=volatile\n' >tree/etc/systemd/journald.conf.d/lab.conf
printf '[Match]\nName=eth0\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\n' >tree/etc/systemd/network/10-eth0.network
# A container whose first process ignores SIGTERM would hold each reboot for a minute and a half.
mkdir -p tree/etc/systemd/system.conf.d
printf '[Manager]\nDefaultTimeoutStopSec=15s\n' >tree/etc/systemd/system.conf.d/lab.conf
mkdir -p tree/etc/systemd/system/multi-user.target.wants
ln -sf /lib/systemd/system/systemd-networkd.service tree/etc/systemd/system/multi-user.target.wants/
# The lab waits for these words on the console, which costs the node nothing.
cat >tree/etc/systemd/system/lab-booted.service <<'UNIT'
[Unit]
Description=Tell the lab that all of the boot has started
[Service]
Type=exec
ExecStart=/bin/sh -c 'systemctl is-system-running --wait >/dev/null; echo "lab: booted" >/dev/ttyS0'
UNIT
ln -s ../lab-booted.service tree/etc/systemd/system/multi-user.target.wants/
# root's own manager stays: it would start again, for seconds, when a connection comes ten seconds after the last.
mkdir -p tree/var/lib/systemd/linger tree/etc/systemd/user
: >tree/var/lib/systemd/linger/root
for unit in dirmngr gpg-agent gpg-agent-browser gpg-agent-extra gpg-agent-ssh; do
    ln -s /dev/null "tree/etc/systemd/user/$unit.socket"
done
# What a node that lives for minutes never needs.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer e2scrub_all.timer \
    e2scrub_reap.service systemd-networkd-wait-online.service systemd-timesyncd.service systemd-pstore.service \
    getty@tty1.service serial-getty@ttyS0.service podman.service podman.socket podman-auto-update.timer \
    podman-auto-update.service podman-restart.service systemd-hwdb-update.service systemd-tmpfiles-clean.timer \
    modprobe@dm_mod.service modprobe@configfs.service modprobe@drm.service sys-kernel-debug.mount \
    sys-kernel-tracing.mount sys-kernel-config.mount systemd-binfmt.service proc-sys-fs-binfmt_misc.automount systemd-update-utmp.service \
    systemd-update-utmp-runlevel.service; do
    ln -sf /dev/null "tree/etc/systemd/system/$unit"
done
# Each daemon-reload starts them all, which took two thirds of its time; a node needs fstab's, and Podman's for Quadlet.
mkdir -p tree/etc/systemd/system-generators
for generator in tree/lib/systemd/system-generators/*; do
    case $generator in
    */systemd-fstab-generator | */podman-system-generator) ;;
    *) ln -s /dev/null "tree/etc/systemd/system-generators/${generator##*/}" ;;
    esac
done
rm -rf tree/etc/update-motd.d
# Of 300 devices these have drivers in modules, or are waited for.
mkdir -p tree/etc/systemd/system/systemd-udev-trigger.service.d
printf '[Service]\nExecStart=\nExecStart=-udevadm trigger --action=add --type=devices --subsystem-match=%s\n' \
    'block --subsystem-match=net --subsystem-match=virtio' >tree/etc/systemd/system/systemd-udev-trigger.service.d/lab.conf
rm -rf tree/var/cache/apt/archives/*.deb tree/var/lib/apt/lists/* tree/usr/share/doc tree/usr/share/man tree/usr/share/locale

truncate -s 3G disk
PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -q -F -d tree disk
rm -rf tree kernel debs initrd
chmod 644 disk vmlinuz initrd.gz
