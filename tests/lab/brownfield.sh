#!/bin/sh
# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Makes the lab's node one that lives already: limits, pools and mounts set by several hands, a busy service, and
# programs that care for CPUs themselves (what stands in for them is a sleep in a unit of their name).
set -eu
system=/etc/systemd/system

# CPUs and limits of slices
mkdir -p $system/user.slice.d $system/system.slice.d
printf '[Slice]\nAllowedCPUs=0-3\n' >$system/user.slice.d/20-admin.conf
printf '[Slice]\nTasksMax=5000\n' >$system/system.slice.d/20-admin.conf

# A file that sorts after Corral's, and a value that no file keeps
echo 'kernel.threads-max = 12000' >/etc/sysctl.d/99-admin.conf
sysctl --quiet --load=/etc/sysctl.d/99-admin.conf
echo 100000 >/proc/sys/kernel/pid_max

# Hugepages by hand; a mount by a unit, one by fstab, one by hand
echo 20 >/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages
echo 4 >/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages
cat >$system/mnt-unit.mount <<END
[Mount]
What=hugetlbfs
Where=/mnt/unit
Type=hugetlbfs
Options=size=16M,mode=0770
[Install]
WantedBy=multi-user.target
END
mkdir -p /mnt/fstab /mnt/hand
echo 'hugetlbfs /mnt/fstab hugetlbfs pagesize=2M,gid=4 0 0' >>/etc/fstab
mount -t hugetlbfs -o pagesize=2M none /mnt/hand

# A service that uses up to a third of a CPU
cat >$system/burn.service <<END
[Service]
ExecStart=/usr/bin/python3 -c 'while True: pass'
CPUQuota=30%
END

# A service that chooses CPUs itself, and a control group as Docker makes them for a container with --cpuset-cpus
printf '[Service]\nCPUAffinity=6-7\nExecStart=/bin/sleep infinity\n' >$system/pinned.service
id=$(printf '%064d' 7)
mkdir -p /var/lib/docker/containers/"$id"
echo '{"Name": "/web"}' >/var/lib/docker/containers/"$id"/config.v2.json

# Others
mkdir -p /etc/tuned/throughput
echo throughput >/etc/tuned/active_profile
printf '[main]\nsummary=Ours\n[sysctl]\nkernel.pid_max=80000\n' >/etc/tuned/throughput/tuned.conf
echo 'IRQBALANCE_BANNED_CPULIST=7' >/etc/default/irqbalance

systemctl daemon-reload
systemctl enable --quiet --now mnt-unit.mount mnt-fstab.mount 2>/dev/null || systemctl start mnt-unit.mount mnt-fstab.mount
systemctl start burn.service pinned.service
systemd-run --quiet --scope --slice=system.slice --unit="docker-$id" --property=AllowedCPUs=5-7 sleep infinity </dev/null >/dev/null 2>&1 &
while [ "$(cat /sys/fs/cgroup/system.slice/docker-"$id".scope/cpuset.cpus.effective 2>/dev/null)" != 5-7 ]; do sleep 0.2; done
for name in tuned irqbalance; do
    systemd-run --quiet --unit=$name.service sleep infinity
done
# The busy service is to be seen as one: it has used more than a second.
used() { sed -n 's/^usage_usec //p' /sys/fs/cgroup/system.slice/burn.service/cpu.stat; }
while [ "$(used)" -lt 1000000 ]; do sleep 0.2; done
