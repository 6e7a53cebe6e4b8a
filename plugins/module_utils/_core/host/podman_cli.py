# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""Podman of root and of users, through its API: only Podman can read its storage.

A pass starts one process of each user, as that user (podman_unit.py), and that one starts Podman. Root opens no file of a user
and follows no path of a user's. Nothing is ever forced: what is in use by the time it is to go, Podman refuses to remove.
"""

from __future__ import annotations

import re
import typing as t

from ..model.gc_policy import image_layers, podman_json
from ..model.gc_policy.gc_match import GcItem
from ..model.gc_policy.image_layers import Layers
from ..model.gc_policy.podman_json import ListedContainer, ListedImage, ListedPod
from ..model.values.errors import shown
from ..model.values.records import NamedTuple
from . import podman_storage
from .files import Host
from .podman_unit import NOT_INSTALLED, Account, Answer, ServiceError, Worker

ROOT = "root"
# A whole storage is read by each question, on a slow disk or behind another Podman's lock.
ASK_SECONDS = 120.0
REMOVE_SECONDS = 180.0
SLACK_SECONDS = 10.0  # for the process to say that Podman did not answer
# Whose answer is a list.
LISTS = ("images", "ps", "pod ps")
# The oldest that 4.3 and 5.4 answer alike.
API, OLDEST = "/v4.0.0/libpod", 4
TOO_OLD = 125  # as a command of Podman's that fails
# Of a pass, for the Podmans of all users together: none can keep it from root's and from each other's.
USERS_SECONDS = 150.0
# The same for images, and for containers and for pods: those of all users have a record of 130 bytes each (state.GC_RECORDS).
USERS_ITEMS = 16_000
# And for what a pass removes, or is refused: each is in its result (gc_outcome.py).
USERS_REMOVALS = 500


class PodmanError(Exception):
    """Podman gave no usable answer; the text names its user, the question and the reason."""


class Share(NamedTuple):
    """What one user has of a pass: seconds, the items of a list (a longer one is not looked at), and removals."""

    seconds: float
    items: float
    removals: float


WHOLE, UNLIMITED = Share(USERS_SECONDS, USERS_ITEMS, USERS_REMOVALS), Share(*[float("inf")] * 3)


class Podmans:
    """The Podmans that a pass asks, each from its first question until the end of the pass."""

    def __init__(self, host: Host, users: int = 1) -> None:
        self.host = host
        users = max(users, 1)
        self.share = Share(USERS_SECONDS / users, USERS_ITEMS // users, max(USERS_REMOVALS // users, 1))
        self.asked: dict[str, Podman] = {}

    def of(self, user: str) -> Podman:
        """A user's Podman. Raises PodmanError."""
        if user not in self.asked:
            self.asked[user] = Podman(self.host, user, self.share)
        return self.asked[user]

    def close(self) -> None:
        """End them all, at the same time: those that do not end by themselves take no longer than one of them."""
        for podman in self.asked.values():
            podman.hang_up()
        for podman in self.asked.values():
            podman.close()


class Podman:
    """One user's Podman. ``user`` is "root", or an account with storage of its own, which has a ``share`` of a pass."""

    # Starts the process that asks it.
    serve: t.Callable[[Host, Account], Worker] = staticmethod(Worker)

    def __init__(self, host: Host, user: str = ROOT, share: Share = WHOLE) -> None:
        self.host = host
        self.user = user
        self.account = ROOTS if user == ROOT else account_of(host, user)
        self.left, self.most, self.removals = UNLIMITED if user == ROOT else share
        self.worker: t.Optional[Worker] = None
        self.device: t.Optional[str] = None  # of the file system that holds a user's storage
        self.too_old: t.Optional[str] = None  # why no question is answered; "" once it is known that it is new enough

    def hang_up(self) -> None:
        """Have the process that asks end; close() waits for it."""
        if self.worker is not None:
            self.worker.hang_up()

    def close(self) -> None:
        """End the process that asks, and with it Podman."""
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.close()

    def ask(self, request: t.Mapping[str, t.Any], timeout: float = ASK_SECONDS) -> Answer:
        """Ask the process. Raises ServiceError; the next request is to another process then."""
        if self.left <= 0:
            raise ServiceError(125, "its share of the time of a pass is over")
        begun = self.host.uptime()
        timeout = min(timeout, self.left)
        try:
            if self.worker is None:
                self.worker = self.serve(self.host, self.account)
            return self.worker.ask({**request, "timeout": timeout}, timeout + SLACK_SECONDS, self.left)
        except ServiceError:
            self.close()
            raise
        finally:
            self.left -= self.host.uptime() - begun

    def request(self, method: str, path: str, timeout: float = ASK_SECONDS, **how: t.Any) -> Answer:
        """Ask for a path of the API. Raises ServiceError."""
        if self.too_old:
            raise ServiceError(TOO_OLD, self.too_old)
        try:
            return self.ask({"method": method, "path": f"{API}{path}", "pick": (), **how}, timeout)
        except ServiceError as error:
            if error.code != NOT_INSTALLED and self.too_old is None:
                # An old one does not know the socket that it was given, and answers nowhere else.
                self.too_old = self.why_too_old()
            if self.too_old:
                raise ServiceError(TOO_OLD, self.too_old) from None
            raise

    def why_too_old(self) -> str:
        """The message for a Podman without this API; "" for one that has it, or whose release is not known."""
        try:
            said = str(self.ask({"version": True}).rows)
        except ServiceError:
            return ""
        found = re.search(r"version (([0-9]{1,6})\.[0-9A-Za-z.+~-]{1,40})", said)
        if found is None or int(found[2]) >= OLDEST:
            return ""
        return f"Podman {found[1]} has no API of version {OLDEST}: garbage collection needs Podman {OLDEST}.0 or newer"

    def rows(self, name: str, path: str, keys: t.Sequence[str]) -> list[dict[str, t.Any]]:
        """The items of an answer; ``name`` is the command that asks the same. Raises PodmanError."""
        for last in (False, True):  # It fails while another Podman removes what it is about to list.
            try:
                answer = self.request("GET", path, pick=keys, list=name in LISTS)
            except ServiceError as error:
                if last or self.too_old or error.code in (124, NOT_INSTALLED):
                    raise PodmanError(self.failed(name, error)) from None
                continue
            if 200 <= answer.status < 300:
                if len(answer.rows) > self.most:
                    raise PodmanError(f"{self.named(name)}: lists more than {self.most} items: not looked at")
                return podman_json.named_rows(answer.rows, keys)
        raise PodmanError(self.said(name, answer.said))

    def read(self, name: str, of: t.Callable[[t.Any], t.Any], path: str, keys: t.Sequence[str]) -> t.Any:
        """The answer as values. Raises PodmanError where it is not as Podman writes it."""
        try:
            return of(self.rows(name, path, keys))
        except ValueError as error:
            raise PodmanError(f"{self.named(name)}: its answer is not as expected: {error}") from None

    def images(self) -> list[ListedImage]:
        """All images, intermediate ones as well."""
        path = "/images/json?all=true"
        return t.cast("list[ListedImage]", self.read("images", podman_json.images, path, podman_json.IMAGE))

    def containers(self) -> list[ListedContainer]:
        """All containers, those of builds as well."""
        booted = self.host.now() - self.host.uptime()
        path = "/containers/json?all=true&external=true"
        found = self.read("ps", lambda data: podman_json.containers(data, booted), path, podman_json.CONTAINER)
        return t.cast("list[ListedContainer]", found)

    def pods(self) -> list[ListedPod]:
        """All pods."""
        return t.cast("list[ListedPod]", self.read("pod ps", podman_json.pods, "/pods/json", podman_json.POD))

    def recent_uses(self, since: float) -> t.Optional[dict[str, float]]:
        """When each image was used last by a container that began or ended since then, by the name it was started by.

        Events know containers which are gone by now. None where Podman keeps no events, or they cannot be read now.
        """
        filters = quoted('{"type":["container"],"event":["create","died"]}')
        try:
            answer = self.request("GET", f"/events?stream=false&since={int(since)}&filters={filters}", events=True)
        except ServiceError:
            return None
        return podman_json.event_uses(answer.rows) if 200 <= answer.status < 300 else None

    def store(self, images: t.Sequence[ListedImage]) -> tuple[str, str]:
        """Where the storage of the images is, and the name of its driver. Raises PodmanError.

        An image's own folder says it. Where that is none of a storage, Podman's description of the node does; for that
        it asks the package manager for all its programs, which takes longer than everything else of a quiet pass.
        """
        for image in [image for image in images if not image.read_only and image.size][:1]:
            try:
                keys = ("GraphDriver",)
                answer = self.request("GET", f"/images/{image.id}/json", pick=keys)
                rows = podman_json.named_rows(answer.rows, keys)
                place = podman_json.store_of_image(rows[0]) if 200 <= answer.status < 300 and rows else None
            except ServiceError as error:
                raise PodmanError(self.failed("image inspect", error)) from None
            except ValueError:
                place = None
            if place is not None:
                return place
        found = self.read("info", lambda rows: podman_json.store(rows[0] if rows else None), "/info", ("store",))
        return t.cast("tuple[str, str]", found)

    def space(self, root: str) -> t.Optional[tuple[int, int, int]]:
        """The file system that holds a storage: its device, its bytes and those that are free; None when it cannot be read.

        A user's process only tells which one: the kernel says how full it is, and root needs no path of the user's for that.
        """
        if self.user == ROOT:
            return self.host.space(root)
        if self.device is None:  # It stays what was said first.
            try:
                rows = self.ask({"device": root}).rows
            except ServiceError:
                return None
            self.device = rows[0][0] if rows and rows[0] and isinstance(rows[0][0], str) else ""
        return self.host.device_space(self.device)

    def stamps(self, root: str, driver: str) -> t.Optional[podman_storage.Stamps]:
        """The stamps of the storage; None where they are not known."""
        paths = podman_storage.paths(root, driver)
        if self.user == ROOT:
            return podman_storage.stamps(paths, [self.host.stamp(path) or [] for path in paths])
        try:
            return podman_storage.stamps(paths, self.ask({"stat": paths}).rows)
        except ServiceError:
            return None

    def layers(self, root: str, driver: str) -> t.Optional[Layers]:
        """The layers that images share, by the storage's own lists; None where they cannot be read."""
        try:
            lists = [
                podman_json.named_rows(
                    self.ask({"file": f"{root}/{driver}-{name}.json", "pick": keys, "list": True}).rows, keys
                )
                for name, keys in (("images/images", image_layers.IMAGE), ("layers/layers", image_layers.LAYER))
            ]
            return image_layers.read(*lists)
        except (ServiceError, ValueError):
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

    def remove_item(self, item: GcItem, *, volumes: bool) -> str:
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
            answer = self.request(method, path, timeout, pick=podman_json.REFUSAL)
            said = answer.said or podman_json.refusal(podman_json.named_rows(answer.rows, podman_json.REFUSAL))
        except ServiceError as error:
            return self.failed(name, error), error.code == 124
        except ValueError as error:
            said = str(error)
        if not said and not 200 <= answer.status < 300:
            said = f"HTTP {answer.status}"
        return self.said(name, said) if said else "", False

    def named(self, name: str) -> str:
        """A command as text."""
        return f"podman {name}" + ("" if self.user == ROOT else f" of {self.user}")

    def failed(self, name: str, error: ServiceError) -> str:
        """Why there is no answer, on one line."""
        if error.code == NOT_INSTALLED:
            return f"{shown(str(error), limit=80)} is not installed on this node"
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


def quoted(text: str) -> str:
    """A text within the query of a path (urllib.parse.quote, without what that loads)."""
    return "".join(
        chr(byte) if re.fullmatch("[A-Za-z0-9._~/-]", chr(byte)) else f"%{byte:02X}"
        for byte in text.encode(errors="surrogatepass")
    )


PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
ROOTS = Account({"Slice": "system.slice"}, {"PATH": PATH, "HOME": "/root", "LC_ALL": "C"})


def account_of(host: Host, user: str) -> Account:
    """As whom a user's process runs, with nothing of that user's environment. Raises PodmanError without an account."""
    answer = host.run("getent", "passwd", user)
    fields = answer.out.strip().split(":")
    if answer.code or len(fields) < 7 or not fields[2].isdecimal():
        # getent(1): 2 is "not found".
        why = (
            "this node has no such user"
            if answer.code == 2
            else f"who that is cannot be asked: {shown(answer.err, limit=80)}"
        )
        raise PodmanError(f"podman of {user}: {why}")
    # The user's own containers.conf could send the questions to another machine; the place of the storage is in another file.
    variables = {"HOME": fields[5], "XDG_RUNTIME_DIR": f"/run/user/{fields[2]}", "CONTAINERS_CONF": "/dev/null"}
    # Podman does not go on without the folder that its storage was used with. systemd 247 removes it as soon as no unit needs it.
    folder = f"user-runtime-dir@{fields[2]}.service"
    # What it takes is taken from the user's share. newuidmap(1) has to gain rights, so NoNewPrivileges= is not possible.
    # Where its group is not the user's, Podman leaves it for a scope of the user's manager, without limits (Delegate=).
    unit = {"Requires": folder, "After": folder, "Slice": f"user-{fields[2]}.slice", "Delegate": "yes"}
    return Account({"User": fields[2], **unit}, {"PATH": PATH, "LC_ALL": "C", **variables})
