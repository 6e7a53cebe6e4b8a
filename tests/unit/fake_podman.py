# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Podman as garbage collection meets it: storages in memory that answer, remove and refuse as Podman 4.3 was seen to.

A storage's lists of images and layers lie in the node's folder, where the real one keeps them. What is asked of Podman's API
is a command of the node (rmi, ps …), so that tests can come between, and each can be made to fail as any other act.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import typing as t
import urllib.parse
from pathlib import Path

from _core.host.command import Command
from _core.host.containers import podman_worker
from _core.host.containers.podman_unit import Account, Answer, answer_of
from _core.host.containers.podman_worker import Failed

ROOT_STORAGE = "/var/lib/containers/storage"
NEVER = -62135596800  # Go's zero time
MIB = 1 << 20
REFUSED = "image is in use by a container: consider listing external containers and force-removing image"
RUNS = "running or paused containers cannot be removed without force: container state improper"


def identity(text: str) -> str:
    """An id that is always the same for a name."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class Image(t.NamedTuple):
    """``layers`` by name, the lowest first."""

    id: str
    names: tuple[str, ...]
    layers: tuple[str, ...]


class Container(t.NamedTuple):
    """``pod`` by id, "" outside of one."""

    id: str
    name: str
    image: str
    state: str
    created: float
    ended: float = NEVER
    pod: str = ""
    infra: bool = False
    labels: t.Mapping[str, str] = {}
    volume: str = ""


class Pod(t.NamedTuple):
    id: str
    name: str
    created: float
    labels: t.Mapping[str, str] = {}


# The command of each request: what it is asked for ({id}, {name} of the query, the query's own fields) stands in it.
COMMANDS = {
    r"GET /images/json": "images",
    r"GET /images/(?P<id>\w+)/json": "image inspect {id}",
    r"GET /containers/json": "ps",
    r"GET /pods/json": "pod ps",
    r"GET /info": "info",
    r"GET /events": "events {since}",
    r"POST /images/(?P<id>\w+)/(?P<verb>tag|untag)": "{verb} {id} {repo}:{tag}",
    r"DELETE /images/remove": "rmi {images}",
    r"DELETE /containers/(?P<id>\w+)": "rm {volumes} {id}",
    r"DELETE /pods/(?P<id>\w+)": "pod rm {id}",
}
NEEDED = {
    "/images/json": {"all": "true"},
    "/images/remove": {"noprune": "true"},
    "/containers/json": {"all": "true", "external": "true"},
    "/events": {"stream": "false", "filters": '{"type":["container"],"event":["create","died"]}'},
}


class Service:
    """The process that asks Podman, with the real one's lines: each request to the API is a command of the node."""

    running: t.ClassVar[list[Service]] = []

    def __init__(self, host: t.Any, account: Account) -> None:
        self.host = host
        user = account.properties.get("User")
        lines = host.read("/etc/passwd").splitlines() if user else []
        self.user = next((line.split(":")[0] for line in lines if line.split(":")[2] == user), "root")
        self.running.append(self)

    def ask(self, request: t.Mapping[str, t.Any], dummy_timeout: float, dummy_most: float) -> Answer:
        if "stat" in request:
            rows = [self.host.stamp(path) or [] for path in request["stat"]]
        elif "device" in request:
            space = self.host.space(request["device"])
            rows = [[f"8:{space[0]}" if space else ""]]
        elif "version" in request:
            rows = [["podman version 4.3.1"]]
        elif "file" in request:
            lines = podman_worker.answers({**request, "file": self.host.at(request["file"])}, self.request)
            return answer_of(lines)
        else:
            return answer_of(podman_worker.answers(json.loads(json.dumps(request)), self.request))
        return Answer(200, "", rows)

    def request(self, method: str, path: str, timeout: float) -> tuple[int, str]:
        parts = urllib.parse.urlsplit(path)
        place = parts.path.removeprefix("/v4.0.0/libpod")
        query = dict(urllib.parse.parse_qsl(parts.query, errors="surrogatepass"))
        assert query.get("force", "false") == "false"
        assert NEEDED.get(place, {}).items() <= query.items()
        for pattern, command in COMMANDS.items():
            found = re.fullmatch(pattern, f"{method} {place}")
            if found:
                words = [word.format(**{**query, **found.groupdict()}) for word in command.split(" ")]
                asked = ("podman", *words) if self.user == "root" else ("as", self.user, "podman", *words)
                return self.reply(words, self.host.run(*asked, timeout=timeout))
        return 404, "404 page not found\n"

    def reply(self, words: list[str], answer: Command) -> tuple[int, str]:
        if answer.code in (124, 126, 127):  # 126: it ended meanwhile
            raise Failed(answer.code, answer.err.removesuffix(": not installed"))
        if answer.code == 0:
            return 200, answer.out
        said = answer.err.partition("Error: ")[2].strip() or answer.err
        if words[0] == "rmi":
            return 200, json.dumps({"ExitCode": answer.code, "Errors": [said]})
        return 500, json.dumps({"cause": said, "message": said, "response": 500})

    def hang_up(self) -> None:
        assert self in self.running

    def close(self) -> None:
        self.running.remove(self)


def is_since(event: t.Any, moment: int) -> bool:
    """What has no time that can be read is always there."""
    time = event.get("time") if isinstance(event, dict) else None
    return not isinstance(time, int) or time >= moment


class Disk:
    """A file system: its size, what others have taken of it, and the storages that it holds."""

    def __init__(self, device: int = 1, capacity: int = 1000 * MIB, others: int = 0) -> None:
        self.device, self.capacity, self.others = device, capacity, others
        self.storages: list[Storage] = []
        self.readable = True
        self.readings = 0

    def space(self) -> tuple[int, int, int] | None:
        self.readings += 1
        taken = self.others + sum(storage.taken for storage in self.storages)
        return (self.device, self.capacity, max(self.capacity - taken, 0)) if self.readable else None


class Storage:
    """One user's storage. ``trouble`` maps a command's first words to the answer that it gives instead."""

    def __init__(self, root: Path, disk: Disk, path: str = ROOT_STORAGE) -> None:
        self.folder, self.path, self.disk = root, path, disk
        self.sizes: dict[str, int] = {}
        self.images: dict[str, Image] = {}
        self.containers: dict[str, Container] = {}
        self.pods: dict[str, Pod] = {}
        self.volumes: set[str] = set()
        self.trouble: dict[str, Command] = {}
        self.events: list[dict[str, t.Any]] = []
        self.before: t.Callable[[tuple[str, ...]], None] = lambda words: None
        disk.storages.append(self)
        self.write()

    # What people do

    def image(self, *names: str, layers: t.Mapping[str, int] | None = None, id: str = "") -> str:
        """Make an image; its layers with their sizes in MiB, the lowest first. Returns its id."""
        layers = {names[0]: 10} if layers is None else layers
        self.sizes.update({layer: size * MIB for layer, size in layers.items()})
        made = Image(id or identity(f"image {names[0]}"), names, tuple(layers))
        self.images[made.id] = made
        self.write()
        return made.id

    def container(self, name: str, image: str, state: str = "exited", **more: t.Any) -> str:
        """Make a container of an image (its id). Returns its id."""
        made = Container(identity(f"container {name}"), name, image, state, more.pop("created", 0.0), **more)
        if made.volume:
            self.volumes.add(made.volume)
        self.containers[made.id] = made
        return made.id

    def pod(self, name: str, created: float, **labels: str) -> str:
        made = Pod(identity(f"pod {name}"), name, created, labels)
        self.pods[made.id] = made
        return made.id

    def change(self, container: str, **fields: t.Any) -> None:
        self.containers[container] = self.containers[container]._replace(**fields)

    # What is seen of it

    @property
    def taken(self) -> int:
        return sum(self.sizes[layer] for layer in {layer for image in self.images.values() for layer in image.layers})

    def names(self) -> list[str]:
        """The images that are there, by their first names."""
        return sorted(image.names[0] if image.names else image.id[:12] for image in self.images.values())

    def left(self) -> list[str]:
        """The containers and pods that are there, by name."""
        containers = [one.name for one in self.containers.values() if not one.infra]
        return sorted([*containers, *(pod.name for pod in self.pods.values())])

    def write(self) -> None:
        """The storage's own lists."""
        layers = {
            layer: image.layers[:index] for image in self.images.values() for index, layer in enumerate(image.layers)
        }
        rows = [
            {"id": identity(name), **({"parent": identity(below[-1])} if below else {}), "diff-size": self.sizes[name]}
            for name, below in layers.items()
        ]
        tops = [
            {
                "id": image.id,
                "names": list(image.names),
                **({"layer": identity(image.layers[-1])} if image.layers else {}),
            }
            for image in self.images.values()
        ]
        for file, data in (("images/images", tops), ("layers/layers", rows)):
            path = self.folder / f"{self.path.lstrip('/')}/overlay-{file}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(data))

    def write_database(self) -> None:
        """The database, anew if anything changed since it was written."""
        path = self.folder / f"{self.path.lstrip('/')}/libpod/bolt_state.db"
        text = repr((self.containers, self.pods, self.images, self.events, self.volumes))
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_suffix(".new")
            new.write_text(text)
            new.replace(path)

    # Podman

    def podman(self, *words: str) -> Command:
        """One command."""
        if words == ("--version",):
            return Command(0, "podman version 4.3.1\n", "")
        self.before(words)
        for length in range(len(words), 0, -1):
            if " ".join(words[:length]) in self.trouble:
                return self.trouble[" ".join(words[:length])]
        if words[0] == "events":
            return Command(
                0, "".join(f"{json.dumps(row)}\n" for row in self.events if is_since(row, int(words[1]))), ""
            )
        for name, do in (
            ("info", self._info),
            ("images", self._images),
            ("ps", self._ps),
            ("pod ps", self._pod_ps),
        ):
            if " ".join(words) == name:
                return Command(0, json.dumps(do()), "")
        if words[:2] == ("image", "inspect"):
            return self._inspect(words[2])
        if words[0] == "rm":
            return self._rm(words[2], volumes=words[1] == "true")
        removals: dict[str, t.Callable[..., Command]] = {"untag": self._untag, "tag": self._tag, "rmi": self._rmi}
        answer = self._pod_rm(words[2]) if words[:2] == ("pod", "rm") else removals[words[0]](*words[1:])
        self.write()
        return answer

    def _info(self) -> object:
        return {"host": {"os": "linux"}, "store": {"graphDriverName": "overlay", "graphRoot": self.path}}

    def _inspect(self, id: str) -> Command:
        if id not in self.images:
            return Command(125, "", f"Error: {id}: image not known\n")
        layers = self.images[id].layers
        upper = {"UpperDir": f"{self.path}/overlay/{identity(layers[-1])}/diff"} if layers else None
        return Command(0, json.dumps({"Id": id, "GraphDriver": {"Name": "overlay", "Data": upper}}), "")

    def _images(self) -> object:
        rows: list[dict[str, t.Any]] = []
        for image in self.images.values():
            digest = f"sha256:{identity(image.id)}"
            rows += [
                {
                    "Id": image.id,
                    "ParentId": "",
                    "RepoTags": None,
                    "RepoDigests": [f"{name.rpartition(':')[0]}@{digest}" for name in image.names],
                    "Size": sum(self.sizes[layer] for layer in image.layers),
                    "Labels": None,
                    "Containers": sum(one.image == image.id for one in self.containers.values()),
                    **({"Names": list(image.names)} if image.names else {"Dangling": True}),
                    "Digest": digest,
                }
            ] * max(len(image.names), 1)
        return rows

    def _ps(self) -> object:
        names = {image.id: image.names[0] if image.names else image.id for image in self.images.values()}
        return [
            {
                "Id": one.id,
                "Names": [one.name],
                "Image": names.get(one.image, ""),
                "ImageID": one.image,
                "State": one.state,
                "Created": datetime.datetime.fromtimestamp(int(one.created), datetime.timezone.utc).isoformat(),
                "Exited": one.ended != NEVER,
                "ExitedAt": int(one.ended),
                "IsInfra": one.infra,
                "Labels": dict(one.labels) or None,
                "Pod": one.pod,
                "PodName": self.pods[one.pod].name if one.pod else "",
            }
            for one in self.containers.values()
        ]

    def _pod_ps(self) -> object:
        utc = datetime.timezone.utc
        return [
            {
                "Id": pod.id,
                "Name": pod.name,
                "Created": datetime.datetime.fromtimestamp(pod.created, utc).strftime("%Y-%m-%dT%H:%M:%S.418684904Z"),
                "Labels": dict(pod.labels),
                "Status": "Created",
            }
            for pod in self.pods.values()
        ]

    def _untag(self, id: str, name: str) -> Command:
        image = self.images[id]
        if "@" in name:
            return Command(125, "", "Error: untag by digest not supported\n")
        if name not in image.names:
            return Command(125, "", f"Error: {name}: tag not known\n")
        self.images[id] = image._replace(names=tuple(one for one in image.names if one != name))
        return Command(0, "", "")

    def _tag(self, id: str, name: str) -> Command:
        if id not in self.images:
            return Command(125, "", f"Error: {id}: image not known\n")
        self.images[id] = self.images[id]._replace(names=(*self.images[id].names, name))
        return Command(0, "", "")

    def _rmi(self, id: str) -> Command:
        image = self.images.get(id)
        if image is None:
            return Command(1, "", f"Error: {id}: image not known\n")
        if len(image.names) > 1:
            said = f'unable to delete image "{id}" by ID with more than one tag ([{" ".join(image.names)}])'
            return Command(125, "", f"Error: {said}: please force removal\n")
        user = next((one for one in self.containers.values() if one.image == id), None)
        if user is not None:
            return Command(2, "", f"Error: image used by {user.id}: {REFUSED}\n")
        del self.images[id]
        return Command(0, json.dumps({"Deleted": [id], "Untagged": image.names[:1], "ExitCode": 0, "Errors": None}), "")

    def _rm(self, id: str, *, volumes: bool) -> Command:
        one = self.containers.get(id)
        if one is None:
            return Command(1, "", f'Error: no container with name or ID "{id}" found: no such container\n')
        if one.state in ("running", "paused"):
            return Command(2, "", f"Error: cannot remove container {id} as it is {one.state} - {RUNS}\n")
        if one.infra:
            said = (
                f"container {id} is the infra container of pod {one.pod} and cannot be removed without removing the pod"
            )
            return Command(125, "", f"Error: {said}\n")
        del self.containers[id]
        if volumes:
            self.volumes.discard(one.volume)
        return Command(0, json.dumps([{"Err": None, "Id": id}]), "")

    def _pod_rm(self, id: str) -> Command:
        if id not in self.pods:
            return Command(1, "", f"Error: no pod with name or ID {id} found: no such pod\n")
        members = [one for one in self.containers.values() if one.pod == id]
        running = [one for one in members if one.state in ("running", "paused") and not one.infra]
        for one in members:
            if one not in running and not one.infra:
                del self.containers[one.id]  # Those that can go are gone, also when another stays.
                self.volumes.discard(one.volume)
        if running:
            said = f"\t* removing container {running[0].id} from pod {id}: cannot remove container {running[0].id} as it is"
            return Command(125, "", f"Error: 1 error occurred:\n{said} running - {RUNS}\n\n\n")
        for one in members:
            self.containers.pop(one.id, None)
        del self.pods[id]
        return Command(0, json.dumps({"Err": None, "Id": id}), "")
