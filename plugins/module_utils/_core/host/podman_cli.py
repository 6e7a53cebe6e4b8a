# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Podman of root and of users, through its API: only Podman can read its storage.

A pass starts one process of each user's Podman, whatever it asks. Nothing is ever forced: what is in use by the time it is
to go, Podman refuses to remove.
"""

from __future__ import annotations

import json
import re
import typing as t

from ..model.gc_policy import image_layers, podman_json
from ..model.gc_policy.gc_match import Item
from ..model.gc_policy.image_layers import Layers
from ..model.gc_policy.podman_json import ListedContainer, ListedImage, ListedPod
from ..model.values.errors import shown
from .files import Host
from .podman_service import NOT_INSTALLED, Reply, Service, ServiceError

ROOT = "root"
# A whole storage is read by each question, on a slow disk or behind another Podman's lock.
ASK_SECONDS = 120.0
REMOVE_SECONDS = 180.0
# The oldest that 4.3 and 5.4 answer alike.
API, OLDEST = "/v4.0.0/libpod", 4
TOO_OLD = 125  # as a command of Podman's that fails


class PodmanError(Exception):
    """Podman gave no usable answer; the text names its user, the question and the reason."""


class Podmans:
    """The Podmans that a pass asks, each from its first question until the end of the pass."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.asked: dict[str, Podman] = {}

    def of(self, user: str) -> Podman:
        """A user's Podman. Raises PodmanError."""
        if user not in self.asked:
            self.asked[user] = Podman(self.host, user)
        return self.asked[user]

    def close(self) -> None:
        """End them all."""
        for podman in self.asked.values():
            podman.close()


class Podman:
    """One user's Podman. ``user`` is "root", or an account with storage of its own."""

    # Starts the process that answers.
    serve: t.Callable[[Host, t.Sequence[str]], Service] = staticmethod(lambda dummy, prefix: Service(prefix))

    def __init__(self, host: Host, user: str = ROOT) -> None:
        self.host = host
        self.user = user
        self.prefix = () if user == ROOT else as_user(host, user)
        self.service: t.Optional[Service] = None
        self.too_old: t.Optional[str] = None  # why no question is answered; "" once it is known that it is new enough

    def close(self) -> None:
        """End the process that answers."""
        service, self.service = self.service, None
        if service is not None:
            service.close()

    def request(self, method: str, path: str, timeout: float = ASK_SECONDS) -> Reply:
        """Ask for a path of the API. Raises ServiceError; the next request is to another process then."""
        if self.too_old:
            raise ServiceError(TOO_OLD, self.too_old)
        try:
            if self.service is None:
                self.service = self.serve(self.host, self.prefix)
            return self.service.request(method, f"{API}{path}", timeout)
        except ServiceError as error:
            self.close()
            if error.code != NOT_INSTALLED and self.too_old is None:
                # An old one does not know the socket that it was given, and answers nowhere else.
                self.too_old = self.why_too_old()
            if self.too_old:
                raise ServiceError(TOO_OLD, self.too_old) from None
            raise

    def why_too_old(self) -> str:
        """The message for a Podman without this API; "" for one that has it, or whose release is not known."""
        found = re.search(r"version ([0-9]{1,6})\.[^\s]{1,40}", self.host.run(*self.prefix, "podman", "--version").out)
        if found is None or int(found[1]) >= OLDEST:
            return ""
        return f"Podman {found[0].split()[1]} has no API of version {OLDEST}: garbage collection needs Podman {OLDEST}.0 or newer"

    def ask(self, name: str, path: str) -> t.Any:
        """The answer to a question as JSON; ``name`` is the command that asks the same. Raises PodmanError."""
        text = self.text(name, path)
        try:
            return json.loads(text)  # null and [] both stand for an empty list
        except (ValueError, RecursionError):
            raise PodmanError(f"{self.named(name)}: its answer is not JSON") from None

    def text(self, name: str, path: str) -> str:
        """The answer to a question as text. Raises PodmanError."""
        for last in (False, True):  # It fails while another Podman removes what it is about to list.
            try:
                reply = self.request("GET", path)
            except ServiceError as error:
                if last or self.too_old or error.code in (124, NOT_INSTALLED):
                    raise PodmanError(self.failed(name, error)) from None
                continue
            if reply.status < 300:
                return reply.body
        raise PodmanError(self.said(name, message(reply.body)))

    def read(self, name: str, of: t.Callable[[t.Any], t.Any], path: str) -> t.Any:
        """The answer as values. Raises PodmanError where it is not as Podman writes it."""
        data = self.ask(name, path)
        try:
            return of(data)
        except ValueError as error:
            raise PodmanError(f"{self.named(name)}: its answer is not as expected: {error}") from None

    def images(self) -> list[ListedImage]:
        """All images, intermediate ones as well."""
        return t.cast("list[ListedImage]", self.read("images", podman_json.images, "/images/json?all=true"))

    def containers(self) -> list[ListedContainer]:
        """All containers, those of builds as well."""
        booted = self.host.now() - self.host.uptime()
        path = "/containers/json?all=true&external=true"
        return t.cast("list[ListedContainer]", self.read("ps", lambda data: podman_json.containers(data, booted), path))

    def pods(self) -> list[ListedPod]:
        """All pods."""
        return t.cast("list[ListedPod]", self.read("pod ps", podman_json.pods, "/pods/json"))

    def recent_uses(self, since: float) -> t.Optional[dict[str, float]]:
        """When each image was used last by a container that began or ended since then, by the name it was started by.

        Events know containers which are gone by now. None where Podman keeps no events, or they cannot be read now.
        """
        filters = quoted('{"type":["container"],"event":["create","died"]}')
        try:
            reply = self.request("GET", f"/events?stream=false&since={int(since)}&filters={filters}")
        except ServiceError:
            return None
        return podman_json.event_uses(reply.body) if reply.status < 300 else None

    def store(self, images: t.Sequence[ListedImage]) -> tuple[str, str]:
        """Where the storage of the images is, and the name of its driver. Raises PodmanError.

        An image's own folder says it. Where that is none of a storage, Podman's description of the node does; for that
        it asks the package manager for all its programs, which takes longer than everything else of a quiet pass.
        """
        for image in [image for image in images if not image.read_only and image.size][:1]:
            try:
                reply = self.request("GET", f"/images/{image.id}/json")
                place = podman_json.store_of_image(json.loads(reply.body)) if reply.status < 300 else None
            except ServiceError as error:
                raise PodmanError(self.failed("image inspect", error)) from None
            except (ValueError, RecursionError):
                place = None
            if place is not None:
                return place
        return t.cast("tuple[str, str]", self.read("info", podman_json.store, "/info"))

    def layers(self, root: str, driver: str) -> t.Optional[Layers]:
        """The layers that images share, by the storage's own lists; None where they cannot be read."""
        texts = [self.host.read(f"{root}/{driver}-{name}.json") for name in ("images/images", "layers/layers")]
        try:
            return image_layers.read(*(json.loads(text or "") for text in texts))
        except (ValueError, RecursionError):
            return None

    def remove_image(self, image: ListedImage) -> str:
        """Remove an image, its names first. Returns why not, "" when it is gone; then it has its names still."""
        taken: list[str] = []
        # With more than one name Podman removes by force only, and a name with a digest it does not take away.
        for name in sorted(image.names, key=lambda name: "@" in name)[:-1]:
            if self.name(image, "untag", name):
                break
            taken.append(name)
        # Without noprune an untagged parent would go as well, however young it is. Only this path knows it in Podman 4.3.
        said, late = self.act("rmi", "DELETE", f"/images/remove?images={image.id}&noprune=true")
        if said and not late:
            for name in taken:
                self.name(image, "tag", name)
        return said

    def name(self, image: ListedImage, verb: str, name: str) -> str:
        """Give a name to an image ("tag") or take it away ("untag"). Returns why not."""
        repository, dummy, tag = name.rpartition(":")
        path = f"/images/{image.id}/{verb}?repo={quoted(repository)}&tag={quoted(tag)}"
        return self.act(verb, "POST", path, ASK_SECONDS)[0]

    def remove_item(self, item: Item, *, volumes: bool) -> str:
        """Remove a dead container or pod. Returns why not, "" when it is gone."""
        # A pod would take its containers' anonymous volumes along, whatever is asked.
        for one in item.members if item.pod else item.containers:
            path = f"/containers/{one.id}?force=false&volumes={'true' if volumes else 'false'}"  # docker's path has v
            said, dummy = self.act("rm", "DELETE", path)
            if said:
                return said
        return self.act("pod rm", "DELETE", f"/pods/{item.id}?force=false")[0] if item.pod else ""

    def act(self, name: str, method: str, path: str, timeout: float = REMOVE_SECONDS) -> tuple[str, bool]:
        """Have something done. Returns why it was not ("": it was), and whether Podman did not answer in time."""
        try:
            reply = self.request(method, path, timeout)
        except ServiceError as error:
            return self.failed(name, error), error.code == 124
        if reply.status >= 300:
            return self.said(name, message(reply.body)), False
        said = podman_json.refusal(reply.body)
        return self.said(name, said) if said else "", False

    def named(self, name: str) -> str:
        """A command as text."""
        return f"podman {name}" + ("" if self.user == ROOT else f" of {self.user}")

    def failed(self, name: str, error: ServiceError) -> str:
        """Why there is no answer, on one line."""
        if error.code == NOT_INSTALLED:
            return f"{error} is not installed on this node"
        if error.code == 124:
            return f"{self.named(name)}: no answer in time (does another Podman hold its storage?)"
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        starts = [line for line in lines if line.startswith("Error")] or lines[-1:]
        return self.said(name, starts[-1].partition("Error: ")[2] or starts[-1] if starts else "it ended")

    def said(self, name: str, text: str) -> str:
        """The error of a failed request, on one line."""
        lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it did not say why"]
        if lines[0].endswith("occurred:"):
            lines[0] = (lines[1:] or lines)[0].lstrip("* ")
        return f"{self.named(name)}: {shown(lines[0], limit=300)}"


def message(body: str) -> str:
    """What a refusal says."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return body
    said = data.get("message") if isinstance(data, dict) else None
    return said if isinstance(said, str) and said else body


def quoted(text: str) -> str:
    """A text within the query of a path (urllib.parse.quote, without what that loads)."""
    return "".join(
        chr(byte) if re.fullmatch("[A-Za-z0-9._~/-]", chr(byte)) else f"%{byte:02X}"
        for byte in text.encode(errors="surrogatepass")
    )


def as_user(host: Host, user: str) -> tuple[str, ...]:
    """What runs a command as a user, with nothing of that user's environment. Raises PodmanError without an account."""
    answer = host.run("getent", "passwd", user)
    fields = answer.out.strip().split(":")
    if answer.code or len(fields) < 7:
        raise PodmanError(f"podman of {user}: this node has no such user")
    runtime = f"/run/user/{fields[2]}"
    if not host.is_dir(runtime):  # Podman does not go on with a storage that it has used with one.
        host.run("systemctl", "start", f"user-runtime-dir@{fields[2]}.service")
    if not host.is_dir(runtime):
        raise PodmanError(f"podman of {user}: {runtime} is not there: loginctl enable-linger {user}")
    # The user's own containers.conf could send the questions to another machine; the place of the storage is in another file.
    environment = [f"HOME={fields[5]}", f"XDG_RUNTIME_DIR={runtime}", "CONTAINERS_CONF=/dev/null", "LC_ALL=C"]
    path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
    return ("runuser", "-u", user, "--", "env", "-i", "-C", "/", path, *environment)
