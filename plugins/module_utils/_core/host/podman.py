# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Podman, root's and that of users: asked through its command, since nothing else knows its storage.

Nothing is ever forced: what somebody uses by the time it is to go, Podman refuses to remove.
"""

from __future__ import annotations

import json
import typing as t

from ..model import image_layers
from ..model import podman as model
from ..model.errors import shown
from ..model.gc_match import Item
from ..model.image_layers import Layers
from ..model.podman import ListedContainer, ListedImage, ListedPod
from .command import Command
from .files import Host

ROOT = "root"
# A whole storage is read by each question, on a slow disk or behind another Podman's lock.
ASK_SECONDS = 120.0
REMOVE_SECONDS = 180.0


class PodmanError(Exception):
    """Podman did not answer, or not in a way that can be relied upon; the text says whose, what and why."""


class Podman:
    """One user's Podman. ``user`` is "root", or an account with storage of its own."""

    def __init__(self, host: Host, user: str = ROOT) -> None:
        self.host = host
        self.user = user
        self.prefix = () if user == ROOT else as_user(host, user)

    def run(self, *words: str, timeout: float = ASK_SECONDS) -> Command:
        """Run a command of Podman's."""
        return self.host.run(*self.prefix, "podman", *words, timeout=timeout)

    def ask(self, *words: str) -> t.Any:
        """The answer to a question as JSON. Raises PodmanError."""
        answer = self.run(*words, "--format", "json")
        if answer.code not in (0, 124, 127):  # It fails while another Podman removes what it is about to list.
            answer = self.run(*words, "--format", "json")
        if answer.code:
            raise PodmanError(self.said(words, answer))
        try:
            return json.loads(answer.out or "null")
        except (ValueError, RecursionError):
            raise PodmanError(f"{self.named(words)}: its answer is no JSON") from None

    def read(self, of: t.Callable[[t.Any], t.Any], *words: str) -> t.Any:
        """The answer as values. Raises PodmanError where it is not as Podman writes it."""
        data = self.ask(*words)
        try:
            return of(data)
        except ValueError as error:
            raise PodmanError(f"{self.named(words)}: its answer is not as expected: {error}") from None

    def images(self) -> list[ListedImage]:
        """All images, intermediate ones as well."""
        return t.cast("list[ListedImage]", self.read(model.images, "images", "--all"))

    def containers(self) -> list[ListedContainer]:
        """All containers, those of builds as well."""
        booted = self.host.now() - self.host.uptime()
        found = self.read(lambda data: model.containers(data, booted), "ps", "--all", "--external")
        return t.cast("list[ListedContainer]", found)

    def pods(self) -> list[ListedPod]:
        """All pods."""
        return t.cast("list[ListedPod]", self.read(model.pods, "pod", "ps"))

    def recent_uses(self, since: float) -> dict[str, float]:
        """When each image was used last by a container that began or ended since then, by the name it was started by.

        That knows containers which are gone by now. Empty where Podman keeps no events, or none that can be read.
        """
        filters = ("--filter=type=container", "--filter=event=create", "--filter=event=died")
        answer = self.run("events", "--stream=false", f"--since={int(since)}", *filters, "--format=json")
        return {} if answer.code else model.event_uses(answer.out)

    def store(self) -> tuple[str, str]:
        """Where the storage is, and the name of its driver."""
        return t.cast("tuple[str, str]", self.read(model.store, "info"))

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
            answer = self.run("untag", image.id, name)
            if answer.code:
                break
            taken.append(name)
        # Without --no-prune an untagged parent would go as well, however young it is.
        answer = self.run("rmi", "--no-prune", image.id, timeout=REMOVE_SECONDS)
        if answer.code == 0:
            return ""
        if answer.code != 124:
            for name in taken:
                self.run("tag", image.id, name)
        return self.said(("rmi",), answer)

    def remove_item(self, item: Item, *, volumes: bool) -> str:
        """Remove a dead container or pod. Returns why not, "" when it is gone."""
        words = ("rm", "--volumes") if volumes else ("rm",)
        # A pod would take its containers' anonymous volumes along, whatever is asked.
        commands = [(*words, one.id) for one in (item.members if item.pod else item.containers)]
        for command in [*commands, ("pod", "rm", item.id)] if item.pod else commands:
            answer = self.run(*command, timeout=REMOVE_SECONDS)
            if answer.code:
                return self.said(command[:-1], answer)
        return ""

    def named(self, words: t.Sequence[str]) -> str:
        """A question as a person reads it."""
        of = "" if self.user == ROOT else f" of {self.user}"
        return f"podman {' '.join(word for word in words if not word.startswith('-'))}{of}"

    def said(self, words: t.Sequence[str], answer: Command) -> str:
        """What went wrong, on one line."""
        if answer.code == 127:
            return "podman is not installed on this node"
        lines = [line.strip() for line in answer.err.splitlines() if line.strip()]
        starts = [index for index, line in enumerate(lines) if line.startswith("Error")] or [len(lines) - 1]
        text = lines[starts[-1]].partition("Error: ")[2] or lines[starts[-1]] if lines else f"exit code {answer.code}"
        if text.endswith("occurred:"):
            text = (lines[starts[-1] + 1 :] or [text])[0].lstrip("* ")
        hint = " (does another Podman hold its storage?)" if answer.code == 124 else ""
        return f"{self.named(words)}: {shown(text, limit=300)}{hint}"


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
