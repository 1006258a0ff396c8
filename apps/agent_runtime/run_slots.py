"""The run slots of a worker, divided between organizations and their deployments.

An organization may hold a share of the slots that the other organizations leave, and a deployment
a share of the slots that its organization's other deployments leave. With 80 % of 781 slots, one
organization runs 625, a second one then 125 of the remaining 156, and so on; 80 % of 625 are 500
for one deployment. However many runs a deployment queues, a slot stays free for the next
deployment, and for the next organization. Running runs are never stopped.

Threads whose organization or deployment holds its share wait here until a run ends. The list of a
deployment is bounded; the sweeper queues the rest again.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple
from uuid import UUID

from apps.agent_server.services.run_usage import share_of_slots

MAX_WAITING_THREADS = 10_000
"""Waiting threads of one deployment."""


class SlotOwner(NamedTuple):
    """The organization and the deployment that a run counts for."""

    organization_id: UUID
    deployment_id: UUID


class FreeSlots(NamedTuple):
    """How many runs a claim may start, in the order of the parameters of `CLAIM`.

    Those that hold no slot are not listed: the defaults apply to them.
    """

    organization_ids: list[UUID]
    organization_counts: list[int]
    new_deployment_counts: list[int]
    """Per listed organization: for each of its deployments that is not listed."""
    deployment_ids: list[UUID]
    deployment_counts: list[int]
    default_deployment_count: int
    default_organization_count: int

    def may_refuse(self, claim_count: int) -> bool:
        """Whether so many claims could exceed the share of an organization or deployment."""
        counts = (
            *self.organization_counts,
            *self.new_deployment_counts,
            *self.deployment_counts,
            self.default_deployment_count,
            self.default_organization_count,
        )
        return min(counts) < claim_count


_MAX_COUNT = 2**31 - 1
UNLIMITED = FreeSlots([], [], [], [], [], _MAX_COUNT, _MAX_COUNT)


class RunSlots:
    """Held slots and waiting threads of a worker. For one event loop."""

    def __init__(
        self, capacity: int, *, organization_percent: int, deployment_percent: int
    ) -> None:
        self._capacity = capacity
        self._organization_percent = organization_percent
        self._deployment_percent = deployment_percent
        self._held_count = 0
        self._held_by_organization: Counter[UUID] = Counter()
        self._held: Counter[SlotOwner] = Counter()
        self._waiting: dict[SlotOwner, dict[UUID, None]] = {}

    def acquire(self, owner: SlotOwner) -> None:
        self._held_count += 1
        self._held_by_organization[owner.organization_id] += 1
        self._held[owner] += 1

    def release(self, owner: SlotOwner) -> None:
        self._held_count -= 1
        self._held_by_organization[owner.organization_id] -= 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        if not self._held_by_organization[owner.organization_id]:
            del self._held_by_organization[owner.organization_id]

    def held(self, owner: SlotOwner) -> int:
        return self._held[owner]

    def free_of_organization(self, organization_id: UUID | None = None) -> int:
        """Slots that the organization may take now; None for one that holds no slot."""
        limit, held = self._organization_limit(organization_id)
        return max(0, limit - held)

    def free_of_deployment(self, owner: SlotOwner | None = None) -> int:
        """Slots that the deployment may take now; None if its organization holds no slot."""
        limit, held = self._organization_limit(owner and owner.organization_id)
        own = 0 if owner is None else self._held[owner]
        return max(0, share_of_slots(limit - (held - own), self._deployment_percent) - own)

    def _organization_limit(self, organization_id: UUID | None) -> tuple[int, int]:
        """Return how many slots the organization may hold, and how many it holds."""
        held = 0 if organization_id is None else self._held_by_organization[organization_id]
        left_by_others = self._capacity - (self._held_count - held)
        return share_of_slots(left_by_others, self._organization_percent), held

    def list_free(self) -> FreeSlots:
        organization_ids = list(self._held_by_organization)
        limits = [self._organization_limit(organization_id) for organization_id in organization_ids]
        return FreeSlots(
            organization_ids,
            [max(0, limit - held) for limit, held in limits],
            [
                max(0, share_of_slots(limit - held, self._deployment_percent))
                for limit, held in limits
            ],
            [owner.deployment_id for owner in self._held],
            [self.free_of_deployment(owner) for owner in self._held],
            self.free_of_deployment(),
            self.free_of_organization(),
        )

    def add_waiting(self, thread: UUID, owner: SlotOwner) -> None:
        """Keep a thread, by primary key, until `pop_waiting`. A kept thread keeps its place."""
        threads = self._waiting.setdefault(owner, {})
        if len(threads) < MAX_WAITING_THREADS:
            threads[thread] = None

    def pop_waiting(self, count: int) -> list[UUID]:
        """Take up to `count` threads that may be claimed now.

        Organizations with fewer slots come first, then their deployments with fewer slots; threads
        of one deployment in order of arrival.
        """
        threads: list[UUID] = []
        held_by_organization, held = self._held_by_organization.copy(), self._held.copy()
        free_by_organization: dict[UUID, int] = {}
        free: dict[SlotOwner, int] = {}
        for owner in self._waiting:
            free_count = self.free_of_deployment(owner)
            if free_count > 0:
                free[owner] = free_count
                organization_id = owner.organization_id
                free_by_organization[organization_id] = self.free_of_organization(organization_id)
        while free and len(threads) < count:
            owner = min(free, key=lambda key: (held_by_organization[key[0]], held[key]))
            organization_id = owner.organization_id
            waiting = self._waiting[owner]
            thread = next(iter(waiting))
            del waiting[thread]
            threads.append(thread)
            held_by_organization[organization_id] += 1
            held[owner] += 1
            free[owner] -= 1
            free_by_organization[organization_id] -= 1
            if not waiting:
                del self._waiting[owner]
            if not waiting or not free[owner]:
                del free[owner]
            if not free_by_organization[organization_id]:
                free = {key: n for key, n in free.items() if key[0] != organization_id}
        return threads

    def pop_all_waiting(self) -> list[UUID]:
        """Take all threads, for other workers."""
        threads = [thread for threads in self._waiting.values() for thread in threads]
        self._waiting.clear()
        return threads
