# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""The words (keys, options, values) of a kubelet's configuration that Corral uses, and the version (1.MINOR) that introduced each word.

Source: Kubernetes, pkg/features/kube_features.go, pkg/kubelet/cm/cpumanager/policy_options.go,
pkg/kubelet/cm/topologymanager/policy_options.go and pkg/kubelet/apis/config/validation. Corral supports kubelets from 1.28 on.
"""

from __future__ import annotations

import re
import typing as t

from ..values.records import NamedTuple

OLDEST = 28
_VERSION = re.compile(r"Kubernetes v([0-9]{1,4})\.([0-9]{1,4})(?![0-9])", re.ASCII)

SIGNALS = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
    "allocatableMemory.available",
)

# The feature gates of a manager's alpha options are off by default; the gates of a manager's beta options are on.
CPU_ALPHA, TOPOLOGY_ALPHA = "CPUManagerPolicyAlphaOptions", "TopologyManagerPolicyAlphaOptions"


class Since(NamedTuple):
    """The minor version that introduced a word (a key, option or value), and the first version where the word needs no ``gate``."""

    came: int
    free: int
    gate: str = ""

    def known(self, minor: int) -> bool:
        """Whether the kubelet 1.``minor`` knows the word."""
        return minor >= self.came

    def gate_of(self, minor: int) -> str:
        """The gate that the word needs in the kubelet 1.``minor``; an empty string if the word needs no gate."""
        return self.gate if self.came <= minor < self.free else ""


CPU_OPTIONS = {
    "full-pcpus-only": Since(22, 23, CPU_ALPHA),
    "distribute-cpus-across-numa": Since(23, 33, CPU_ALPHA),
    "align-by-socket": Since(25, 1 << 30, CPU_ALPHA),
    "distribute-cpus-across-cores": Since(31, 1 << 30, CPU_ALPHA),
    "strict-cpu-reservation": Since(32, 33, CPU_ALPHA),
    "prefer-align-cpus-by-uncorecache": Since(32, 34, CPU_ALPHA),
}
TOPOLOGY_OPTIONS = {
    "prefer-closest-numa-nodes": Since(26, 28, TOPOLOGY_ALPHA),
    "max-allowable-numa-nodes": Since(31, 31),
}
# Keys of the configuration that some supported kubelets do not know, or know only with a feature gate.
KEYS = {
    "imageMaximumGCAge": Since(29, 30, "ImageMaximumGCAge"),
    "memorySwap": Since(22, 30, "NodeSwap"),
}
# Words of enforceNodeAllocatable, and of memorySwap.swapBehavior.
WORDS = {
    "system-reserved-compressible": Since(32, 32),
    "kube-reserved-compressible": Since(32, 32),
    "NoSwap": Since(30, 30),
}


def version(text: str) -> t.Optional[tuple[int, int]]:
    """The version in the output of ``kubelet --version``: ``Kubernetes v1.30.2+k3s1`` → (1, 30); None for any other text."""
    match = _VERSION.match(text)
    return (int(match.group(1)), int(match.group(2))) if match else None


# The keys of a KubeletConfiguration in Kubernetes 1.37 (staging/src/k8s.io/kubelet/config/v1beta1/types.go).
NEWEST = 37
_KEYS = """
    address allowedUnsafeSysctls authentication authorization cgroupDriver cgroupRoot cgroupsPerQOS clusterDNS
    clusterDomain configMapAndSecretChangeDetectionStrategy containerLogMaxFiles containerLogMaxSize
    containerLogMaxWorkers containerLogMonitorInterval containerRuntimeEndpoint contentType cpuCFSQuota
    cpuCFSQuotaPeriod cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod crashLoopBackOff
    defaultPodSysctls enableContentionProfiling enableControllerAttachDetach enableDebugFlagsHandler
    enableDebuggingHandlers enableProfilingHandler enableServer enableSystemLogHandler enableSystemLogQuery
    enforceNodeAllocatable eventBurst eventRecordQPS evictionHard evictionMaxPodGracePeriod evictionMinimumReclaim
    evictionPressureTransitionPeriod evictionSoft evictionSoftGracePeriod failCgroupV1 failSwapOn featureGates
    fileCheckFrequency hairpinMode healthzBindAddress healthzPort httpCheckFrequency imageGCHighThresholdPercent
    imageGCLowThresholdPercent imageMaximumGCAge imageMinimumGCAge imagePullCredentialsVerificationPolicy
    imageServiceEndpoint iptablesDropBit iptablesMasqueradeBit kernelMemcgNotification kubeAPIBurst kubeAPIQPS
    kubeletCgroups kubeReserved kubeReservedCgroup localStorageCapacityIsolation logging makeIPTablesUtilChains
    maxOpenFiles maxParallelImagePulls maxPods memoryManagerPolicy memoryReservationPolicy memorySwap
    memoryThrottlingFactor mergeDefaultEvictionSettings nodeLeaseDurationSeconds nodeStatusMaxImages
    nodeStatusReportFrequency nodeStatusUpdateFrequency oomScoreAdj podCIDR podLogsDir podPidsLimit podsPerCore port
    preloadedImagesVerificationAllowlist protectKernelDefaults providerID qosReserved readOnlyPort registerNode
    registerWithTaints registryBurst registryPullQPS reservedMemory reservedSystemCPUs resolvConf rotateCertificates
    runOnce runtimeRequestTimeout seccompDefault serializeImagePulls serverTLSBootstrap showHiddenMetricsForVersion
    shutdownGracePeriod shutdownGracePeriodByPodPriority shutdownGracePeriodCriticalPods singleProcessOOMKill
    staticPodPath staticPodURL staticPodURLHeader streamingConnectionIdleTimeout syncFrequency systemCgroups
    systemReserved systemReservedCgroup tlsCertFile tlsCipherSuites tlsCurvePreferences tlsMinVersion tlsPrivateKeyFile
    topologyManagerPolicy topologyManagerPolicyOptions topologyManagerScope tracing userNamespaces volumePluginDir
    volumeStatsAggPeriod
"""
CONFIGURATION = frozenset(_KEYS.split())
