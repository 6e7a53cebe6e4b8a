# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# This module is private to the collection corral.node.
"""How many CPUs each NUMA node gives when CPUs are distributed evenly (takeByTopologyNUMADistributed, KEP-2902).

The kubelet takes the fewest nodes that can share the CPUs evenly, in groups of CPUs. Of several such combinations it takes the best balance
of the CPUs that stay free on all nodes: the lowest standard deviation to three decimals, and of equal combinations the first. The remainder
of the division goes to some of the chosen nodes, a group at a time in turn.

The kubelet looks at every combination of nodes, and in each at every subset for the remainder. This search finds the same combination, but
skips combinations that cannot be best: of nodes with equally many free CPUs it tries only the first, and it continues a combination only
while the best possible balance is better than the best found. It is exact on machines of up to eight nodes with CPUs. On larger machines
with very uneven nodes it ends after LIMIT combinations with the best so far: the division is as even, but another choice of nodes might
leave a better balance. Two errors of the kubelet 1.36 are not repeated: combinations of four and more nodes overwrite one another in memory
(a Go slice is kept without a copy), and a remainder that fits only in parts of groups loops forever.
"""

from __future__ import annotations

import heapq
import math
import typing as t

from ..values.records import NamedTuple

# The search compares at most this number of combinations of a number of nodes.
LIMIT = 4000
# The recursion of the search is as deep as the number of nodes.
MOST_NODES = 128

Portion = tuple[int, int]  # the index of a node, and a number of CPUs


def portions(free: t.Sequence[int], count: int, group: int, fewest: int) -> list[Portion] | None:
    """The CPUs to take from each node, in this order; None if no number of nodes from ``fewest`` on can share the CPUs evenly.

    ``free``: the numbers of free CPUs, without nodes that have no free CPU, in the kubelet's order of nodes. ``group`` divides ``count``.
    """
    for number in range(fewest, min(count // group, len(free)) + 1):
        chosen = _Search(free, count, group, number).run()
        if chosen is not None:
            return chosen
    return None


class _Choice(NamedTuple):
    """A combination: each of the ``nodes`` gives an equal share, and one more group for each time that the node is in ``extra``."""

    balance: int
    nodes: tuple[int, ...]
    extra: tuple[int, ...]


class _Search:
    """The search for the best combination of ``number`` nodes."""

    def __init__(self, free: t.Sequence[int], count: int, group: int, number: int) -> None:
        self.free = free
        self.group = group
        self.number = number
        self.share = count // number // group * group
        self.rest = (count - self.share * number) // group
        self.nodes = [node for node, cpus in enumerate(free) if cpus >= self.share]
        self.squares = sum(cpus * cpus for cpus in free)
        self.total_after = sum(free) - count
        self.fullest: dict[int, list[int]] = {}
        self.tries = 0
        self.best: _Choice | None = None
        self.in_order = False

    def run(self) -> list[Portion] | None:
        """The portions of the best combination; None if no combination has enough CPUs."""
        goal = self.lowest_balance((), 0)
        if goal is None:
            return None
        # The nodes with most free CPUs are often the best choice: if they are evaluated first, the search skips nearly all other choices.
        self.best = self.evaluate(tuple(sorted(self.fullest_from(0)[: self.number])))
        if len(self.nodes) <= MOST_NODES:
            self.walk((), 0, goal)
        shares = [(node, self.share) for node in self.best.nodes]
        return shares + [(node, self.group) for node in self.best.extra]

    def walk(self, chosen: tuple[int, ...], start: int, goal: int) -> None:
        """Search the combinations that begin with ``chosen``, in the kubelet's order."""
        if len(chosen) == self.number:
            choice = self.evaluate(chosen)
            if self.improves(choice.balance):
                self.best, self.in_order = choice, True
            return
        seen: set[int] = set()
        for at in range(start, len(self.nodes) - self.number + len(chosen) + 1):
            node = self.nodes[at]
            if self.free[node] in seen:
                continue
            seen.add(self.free[node])
            if self.tries > LIMIT or not self.improves(goal):
                return
            lowest = self.lowest_balance((*chosen, node), at + 1)
            if lowest is not None and self.improves(lowest):
                self.walk((*chosen, node), at + 1, goal)

    def improves(self, balance: int) -> bool:
        """Whether this balance is better than the best balance so far. Before the walk's first choice an equal balance counts too."""
        best = self.best
        return best is None or balance < best.balance or (balance == best.balance and not self.in_order)

    def balance(self, gain: int) -> int:
        """The standard deviation of the nodes' free CPUs in thousandths, if the sum of their squares goes down by ``gain``."""
        number = len(self.free)
        deviation = math.sqrt(number * (self.squares - gain) - self.total_after**2) / number
        return math.floor(deviation * 1000 + 0.5)

    def gain_of_shares(self, nodes: t.Iterable[int]) -> int:
        return sum(_gain(self.free[node], self.share) for node in nodes)

    def lowest_balance(self, chosen: tuple[int, ...], start: int) -> int | None:
        """A lower bound of the balance of ``chosen`` with nodes from ``start`` on; None if no such combination has enough CPUs.

        The bound is the balance that results if the nodes with most free CPUs give the shares, and each next group of the remainder comes
        from the node that has most free CPUs then.
        """
        self.tries += 1
        missing = self.number - len(chosen)
        others = self.fullest_from(start)[:missing]
        if len(others) < missing:
            return None
        nodes = (*chosen, *others)
        gain = self.gain_of_rest([self.free[node] - self.share for node in nodes])
        return None if gain is None else self.balance(self.gain_of_shares(nodes) + gain)

    def fullest_from(self, start: int) -> list[int]:
        if start not in self.fullest:
            self.fullest[start] = sorted(self.nodes[start:], key=lambda node: -self.free[node])
        return self.fullest[start]

    def gain_of_rest(self, left: t.Iterable[int]) -> int | None:
        """The highest decrease of the sum of squares by the remainder, on nodes with ``left`` CPUs, in any order of turns."""
        heap = [-cpus for cpus in left]
        heapq.heapify(heap)
        gain = 0
        for dummy in range(self.rest):
            fullest = -heap[0]
            if fullest < self.group:
                return None
            gain += _gain(fullest, self.group)
            heapq.heapreplace(heap, self.group - fullest)
        return gain

    def evaluate(self, nodes: tuple[int, ...]) -> _Choice:
        """The combination of ``nodes`` with its best subset for the remainder. The combination must have enough CPUs."""
        self.tries += 1
        gain = self.gain_of_shares(nodes)
        if not self.rest:
            return _Choice(self.balance(gain), nodes, ())
        able = [node for node in nodes if self.free[node] - self.share >= self.group]
        left = [self.free[node] - self.share for node in able]
        best = self.one_each(left, gain)
        rest_gain = self.gain_of_rest(left)
        lowest = self.balance(gain + (rest_gain or 0))
        if best is None or lowest < best[0]:
            best = self.in_turns(left, gain, lowest, best)
        return _Choice(best[0], nodes, tuple(able[index] for index in best[1]))

    def one_each(self, left: list[int], gain: int) -> tuple[int, tuple[int, ...]] | None:
        """The balance and nodes of the best subset in which a node gives at most one more group; None if there are fewer nodes than groups.

        The kubelet tries larger subsets first, and the first nodes of a subset give: this search begins with the first nodes and adds more.
        """
        if len(left) < self.rest:
            return None
        fixed = gain - self.rest * self.group * self.group

        def balance(fullest: t.Iterable[int]) -> int:
            return self.balance(fixed + 2 * self.group * sum(fullest))

        fullest = left[: self.rest]
        best, among = balance(fullest), self.rest
        heapq.heapify(fullest)
        for number, cpus in enumerate(left[self.rest :], self.rest + 1):
            if heapq.heappushpop(fullest, cpus) != cpus and balance(fullest) < best:
                best, among = balance(fullest), number
        return best, _earliest(left[:among], self.rest, lambda cpus: balance(cpus) == best)

    def in_turns(
        self, left: list[int], gain: int, lowest: int, best: tuple[int, tuple[int, ...]] | None
    ) -> tuple[int, tuple[int, ...]]:
        """The balance and turns of the best subset with fewer nodes than groups; ``best`` if no such subset is better."""
        for number in range(min(len(left), self.rest - 1), 0, -1):
            for subset in _subsets(left, number):
                if best is not None and (self.tries > LIMIT or best[0] == lowest):
                    return best
                self.tries += 1
                turns = self.turns(left, subset)
                if turns is None:
                    continue
                given = sum(_gain(left[index], turns.count(index) * self.group) for index in subset)
                if best is None or self.balance(gain + given) < best[0]:
                    best = self.balance(gain + given), turns
        if best is None:
            raise ValueError("no node can take a turn")  # the caller has checked that the nodes have enough CPUs
        return best

    def turns(self, left: list[int], subset: tuple[int, ...]) -> tuple[int, ...] | None:
        """The nodes that give the groups, one after another; None if the subset has too few CPUs."""
        have = [left[index] // self.group for index in subset]
        if sum(have) < self.rest:
            return None
        rounds = ((turn, index) for turn in range(self.rest) for index in range(len(subset)) if turn < have[index])
        return tuple(subset[index] for dummy, (turn, index) in zip(range(self.rest), rounds))


def _gain(free: int, given: int) -> int:
    """The decrease of the square of a node's ``free`` CPUs after the node has ``given`` CPUs."""
    return free * free - (free - given) ** 2


def _earliest(values: list[int], number: int, good: t.Callable[[list[int]], bool]) -> tuple[int, ...]:
    """The lowest indexes of ``number`` values for which ``good`` is true. A choice with a higher value is never worse."""
    chosen: list[int] = []
    for index in range(len(values)):
        left = number - len(chosen) - 1
        if left < 0:
            break
        others = sorted(values[index + 1 :], reverse=True)[:left]
        if len(others) == left and good([*(values[at] for at in chosen), values[index], *others]):
            chosen.append(index)
    return tuple(chosen)


def _subsets(values: list[int], number: int, start: int = 0) -> t.Iterator[tuple[int, ...]]:
    """The indexes of each choice of ``number`` values, in order; of choices with equal values only the first."""
    if not number:
        yield ()
        return
    seen: set[int] = set()
    for index in range(start, len(values) - number + 1):
        if values[index] not in seen:
            seen.add(values[index])
            for others in _subsets(values, number - 1, index + 1):
                yield (index, *others)
