# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices as a profile declares them: what is read, what is refused, and in which words."""

from __future__ import annotations

import typing as t

import pytest
from _core.model.devices.device import Check, Match, Resource
from _core.model.profile import compose, profile
from _core.model.values.errors import CorralError


def row(name: object = "example.com/nic", **match: t.Any) -> dict[str, t.Any]:
    return {"name": name, "match": match}


def parse(*rows: t.Any) -> profile.Profile:
    return profile.parse({"name": "x", "devices": list(rows)})


def lines(*rows: t.Any) -> list[str]:
    with pytest.raises(CorralError) as caught:
        parse(*rows)
    return str(caught.value).splitlines()


def check(**keys: t.Any) -> list[dict[str, t.Any]]:
    return [{**row(pci="8086:1572"), "check": keys}]


def bind(**match: t.Any) -> list[dict[str, t.Any]]:
    return [{**row(**match), "bind": "vfio-pci"}]


ROWS = (
    row(pci="8086:1572", **{"class": "0200"}, driver="i40e", interface="ens1f*", iommu_group=0),
    {**row("example.com/link", pci="8086:*"), "require_link": True},
    row("example.com/tty", path="/dev/serial/by-path/*"),
    {**row("example.com/vfio", pci="8086:1593", iommu_group=3), "bind": "mlx5_vfio_pci"},
    {
        **row("nvidia.com/gpu", cdi="nvidia.com/gpu=GPU-*"),
        "check": {"command": ["/usr/sbin/gpu-ok", "-n", "1", "-t", "1"], "interval": "5m", "timeout": "10s"},
    },
)


def test_a_section_is_read_and_written_out_again() -> None:
    found = parse(*ROWS)
    assert found.devices == (
        Resource("example.com/nic", Match("8086:1572", "0200", "i40e", "ens1f*", 0)),
        Resource("example.com/link", Match(pci="8086:*"), True),
        Resource("example.com/tty", Match(path="/dev/serial/by-path/*")),
        Resource("example.com/vfio", Match(pci="8086:1593", iommu_group=3), bind="mlx5_vfio_pci"),
        Resource(
            "nvidia.com/gpu",
            Match(cdi="nvidia.com/gpu=GPU-*"),
            check=Check(("/usr/sbin/gpu-ok", "-n", "1", "-t", "1"), 300, 10),
        ),
    )
    assert profile.to_data(found)["devices"] == list(ROWS)
    assert profile.parse(profile.to_data(found)) == found


def test_hexadecimal_digits_are_lower_case() -> None:
    assert parse(row(pci="10DE:2330", **{"class": "030A"})).devices[0].match == Match("10de:2330", "030a")


REFUSED = (
    ([row("nic", pci="8086:1572")], "devices[0].name: nic: is not the name of a resource"),
    ([row("kubernetes.io/nic", pci="8086:1572")], "devices[0].name: kubernetes.io/nic: is in a domain of Kubernetes"),
    (
        [row("a.io/nic-1", pci="8086:1572"), row("a.io/NIC.1", pci="8086:1573")],
        "devices[1].name: a.io/NIC.1: gets the variables of a.io/nic-1 as devices[0] (…_A_IO_NIC_1): change a letter",
    ),
    ([row(cdi="corral.node/grant")], "devices[0].match.cdi: corral.node/grant: is what Corral makes of its grants"),
    ([row(cdi="corral.node/grant=a")], "devices[0].match.cdi: corral.node/grant=a: is what Corral makes of its grants"),
    ([row("a.kubernetes.io/nic", pci="8086:1572")], "is in a domain of Kubernetes"),
    ([row("requests.a.io/nic", pci="8086:1572")], "begins as the requests of a quota do"),
    ([row("a" * 9999, pci="8086:1572")], "is not the name of a resource"),
    ([row("example.com/a\nb", pci="8086:1572")], "is not the name of a resource"),
    ([row(pci="8086:1572"), row(driver="i40e")], "devices[1].name: example.com/nic: is devices[0] already"),
    ([row()], "devices[0].match: matches everything: write one or more of address, pci, class"),
    ([{"name": "example.com/nic"}], "devices[0].match: is missing"),
    ([row(path="/dev/a", pci="8086:1572")], "devices[0].match: declares path and pci together: path must be alone"),
    ([row(path="/dev/a", cdi="a.com/b")], "declares path and cdi together"),
    ([{**row(path="/dev/a"), "require_link": True}], "devices[0].match.path: /dev/a: has no link"),
    ([row(pci="8086")], "devices[0].match.pci: 8086: is not VENDOR:DEVICE"),
    ([row(pci=8086)], "devices[0].match.pci: 8086: is a number, as YAML reads digits: write it in quotes"),
    ([row(**{"class": 0o200})], 'devices[0].match.class: 128: is a number, as YAML reads 0200 without quotes: write "0200"'),
    ([row(**{"class": 1200})], 'devices[0].match.class: 1200: is a number, as YAML reads 1200 without quotes: write "1200"'),
    ([row(**{"class": -1})], 'devices[0].match.class: -1: is a number, as YAML reads digits: write it in quotes, such as "0200"'),
    (
        [row(address=180.1)],  # 0000:03:00.1
        ("devices[0].match.address: 180.1: is a number with a decimal point, as YAML reads 0000:03:00.1 without quotes: "
         'write "0000:03:00.1"'),
    ),
    (
        [row(address="3b:00.0")],
        'devices[0].match.address: 3b:00.0: has no domain, which lspci shows with -D: did you mean "0000:3b:00.0"?',
    ),
    ([row(**{"class": "020"})], "devices[0].match.class: 020: is not the first 2, 4 or 6"),
    ([row(driver="../i40e")], "is not the name of a driver"),
    ([row(interface="a/b")], "is not the name of a network interface"),
    ([row(iommu_group="12")], "devices[0].match.iommu_group: 12: is text: write 12 without quotes"),
    ([row(path="/etc/passwd")], "devices[0].match.path: /etc/passwd: is not a path in /dev"),
    ([row(path="/dev/../etc/*")], "has an empty part, . or .. in it"),
    ([row(path="/dev/shm/*")], "may lead to files that users make"),
    ([row(path="/dev/*")], "devices[0].match.path: /dev/*: matches all of /dev, null and disks among it: write a path"),
    ([row(path="/dev/*/a")], "may lead to files that users make"),
    ([row(cdi="gpu")], "devices[0].match.cdi: gpu: is not a CDI kind"),
    ([row(drivr="i40e")], "devices[0].match.drivr: unknown key: did you mean devices[0].match.driver?"),
    (["nic"], "devices[0]: nic: is text, not a mapping"),
    (bind(driver="i40e"), "devices[0].bind: vfio-pci: needs a match by address, pci, class or iommu_group, not by driver"),
    (bind(pci="8086:1572", interface="ens1*"), "devices[0].bind: vfio-pci: needs a match by address, pci, class or iommu_group, not by interface"),
    (bind(path="/dev/vfio/*"), "devices[0].bind: vfio-pci: needs a match by address, pci, class or iommu_group, not by path"),
    (bind(cdi="nvidia.com/gpu"), "devices[0].bind: vfio-pci: needs a match by address, pci, class or iommu_group, not by cdi"),
    ([{**bind(pci="8086:1572")[0], "require_link": True}], "devices[0].bind: vfio-pci: leaves no network interface for require_link"),
    ([{**row(pci="8086:1572"), "bind": "i40e"}], "devices[0].bind: i40e: is not a VFIO driver: write it as in vfio-pci"),
    ([{**row(pci="8086:1572"), "bind": "../vfio-pci"}], "is not a VFIO driver"),
    (check(), "devices[0].check.command: is missing: write it as in command: [/usr/local/sbin/nic-ok]"),
    (check(command=[]), "devices[0].check.command: a list of 0: has no words: write a command"),
    (check(command=["nic-ok"]), "devices[0].check.command[0]: nic-ok: is not an absolute path: write the program's path"),
    (check(command="/bin/nic-ok"), "devices[0].check.command: /bin/nic-ok: is text, not a list: write it as in"),
    (check(command=["/bin/a\nb"]), "devices[0].check.command[0]: /bin/a\\nb: is not a word of a command"),
    (check(command=["/bin/a"], timeout="2m"), "devices[0].check.timeout: 2m: is out of bounds: write 1s to 1m"),
    (check(command=["/bin/a"], timeout=5), "devices[0].check.timeout: 5: has no unit: write seconds as 5s"),
    (check(command=["/bin/a"], interval="1s"), "devices[0].check.interval: 1s: is out of bounds: write 10s to"),
)  # fmt: skip


def test_an_unknown_key_of_a_match_is_the_only_problem() -> None:
    """As long as the key may be what the match is about, "matches everything" would be a guess."""
    assert lines(row(vendor="8086")) == [
        "devices[0].match.vendor: unknown key: write one of address, pci, class, driver, interface, iommu_group, path, cdi"
    ]


def test_a_section_that_is_no_list_names_the_keys_of_an_item_alone() -> None:
    with pytest.raises(CorralError) as caught:
        profile.parse({"name": "x", "devices": {"name": "example.com/nic"}})
    assert str(caught.value).splitlines() == [
        "devices: a mapping of 1: is a mapping, not a list: write items with name, match, require_link, bind, check"
    ]


@pytest.mark.parametrize(("rows", "part"), REFUSED, ids=[part[:60] for dummy, part in REFUSED])
def test_it_is_refused_with_path_value_and_way_out(rows: list[t.Any], part: str) -> None:
    found = lines(*rows)
    assert part in found[0]


def test_a_later_layer_chooses_another_kind_of_match() -> None:
    first = compose.Layer("group", {"name": "x", "devices": [row(pci="8086:1572", driver="i40e")]})
    second = compose.Layer("host", {"devices": [row(path="/dev/uio0")]})
    third = compose.Layer("last", {"devices": [row(driver="vfio-pci")]})
    assert compose.compose([first, second]).data["devices"] == [row(path="/dev/uio0")]
    assert compose.compose([first, third]).data["devices"] == [row(pci="8086:1572", driver="vfio-pci")]
    assert compose.compose([second, third]).data["devices"] == [row(driver="vfio-pci")]


# Requests of workloads


def with_workload(**keys: t.Any) -> profile.Profile:
    one = {"name": "dpdk", "match": {"unit": "dpdk.service"}, **keys}
    return profile.parse(
        {"name": "x", "cpu": {"reserved": {"count": 1}}, "devices": [row(pci="8086:1572")], "workloads": [one]}
    )


@pytest.mark.parametrize(
    "keys",
    [
        {"requests": {"example.com/nic": 2}},
        {"limits": {"example.com/nic": "2"}},
        {"requests": {"example.com/nic": 2}, "limits": {"example.com/nic": 2}},
        {"requests": {"example.com/nic": "0.002k"}},
    ],
    ids=str,
)
def test_requests_and_limits_of_devices_are_one_number(keys: dict[str, t.Any]) -> None:
    found = with_workload(**keys)
    (one,) = found.workloads
    assert one.requests == one.limits == (("example.com/nic", 2),)
    assert profile.parse(profile.to_data(found)) == found
    assert profile.to_data(found)["workloads"][0]["requests"] == {"example.com/nic": "2"}


def test_a_thousand_devices_are_written_as_a_number() -> None:
    found = with_workload(requests={"example.com/nic": 1024})
    assert profile.to_data(found)["workloads"][0]["requests"] == {"example.com/nic": "1024"}


NIC_PATH = 'workloads[0].requests["example.com/nic"]'


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            {"requests": {"example.com/nic": "500m"}},
            f"{NIC_PATH}: 500m: is not a whole number: devices are given as a whole",
        ),
        ({"requests": {"example.com/nic": 0}}, f"{NIC_PATH}: 0: is not more than 0"),
        (
            {"requests": {"example.com/nic": 1}, "limits": {"example.com/nic": 2}},
            f"{NIC_PATH}: 1: devices cannot be overcommitted, the limit is 2: write one of the two",
        ),
        (
            {"limits": {"example.com/gpu": 1}},
            'limits["example.com/gpu"]: 1: is of a resource that is not declared, devices has example.com/nic: declare it there',
        ),
        ({"requests": {"nic": 1}}, "or a resource of devices such as example.com/nic"),
        ({"requests": {"kubernetes.io/nic": 1}}, "is in a domain of Kubernetes itself"),
    ],
    ids=str,
)
def test_requests_that_are_refused(keys: dict[str, t.Any], said: str) -> None:
    with pytest.raises(CorralError) as caught:
        with_workload(**keys)
    assert said in str(caught.value)


def test_a_request_of_a_container_is_refused_where_it_stands() -> None:
    containers = [{"name": "app", "requests": {"example.com/gpu": 1}}]
    with pytest.raises(CorralError) as caught:
        with_workload(match={"pod": "a"}, containers=containers)
    assert 'workloads[0].containers[0].requests["example.com/gpu"]: 1: is of a resource' in str(caught.value)
    with pytest.raises(CorralError, match="devices has none"):
        profile.parse(
            {
                "name": "x",
                "cpu": {"reserved": {"count": 1}},
                "workloads": [{"name": "a", "match": {"unit": "a.service"}, "requests": {"example.com/gpu": 1}}],
            }
        )


def test_a_check_has_times_of_its_own() -> None:
    assert parse(*check(command=["/bin/ok"])).devices[0].check == Check(("/bin/ok",), 30, 5)
