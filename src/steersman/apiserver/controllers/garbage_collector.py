"""Owner references: what belonged to a deleted object goes with it.

An object is collected when it has owners and none of them exists any more. Deleting an owner in the *foreground*
deletes its dependents first, those that block it before it may go; *orphaning* takes the owner's name off them instead.
Owners are compared by uid, and count only where the object could see them: in its own namespace or in the cluster's
scope.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steersman.apiserver.controllers.isolation import reconcile_alone
from steersman.apiserver.http.requests import WriteOptions
from steersman.apiserver.status_errors import StatusError
from steersman.apiserver.write.deletion import FOREGROUND, ORPHAN, DeleteOptions, Preconditions, delete_object
from steersman.apiserver.write.pipeline import change

if TYPE_CHECKING:
    from steersman.apiserver.http.state import Api
    from steersman.apiserver.resources.kinds import ResourceInfo
    from steersman.apiserver.storage.store import Record, ResourceTable, StoreEvent

Place = tuple[str, str]  # table, key
MANAGER = WriteOptions(manager="kube-controller-manager")


class GarbageCollector:
    """Deletes dependents of deleted owners; keeps an index from owners to dependents."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._alive: dict[str, Place] = {}  # uid -> where
        self._dependents: dict[str, set[Place]] = {}  # owner's uid -> who names it
        self._due: dict[Place, None] = {}
        self._leaving: dict[Place, None] = {}  # owners with a finalizer of ours

    def observe(self, table: ResourceTable, event: StoreEvent) -> bool:
        record, previous = event.record, event.previous
        metadata = record.obj["metadata"]
        place = (table.kind.qualified, record.key)
        owners = metadata.get("ownerReferences")
        before = previous.obj["metadata"].get("ownerReferences") if previous is not None else None
        if event.type == "ADDED":
            self._alive[metadata["uid"]] = place
        elif event.type == "DELETED":
            return self._gone(metadata["uid"], place, before)
        if owners is not before and owners != before:
            self._unlink(before, place)
            for owner in owners or ():
                self._dependents.setdefault(owner["uid"], set()).add(place)
            if owners:
                self._due[place] = None
        if "deletionTimestamp" in metadata and not {FOREGROUND, ORPHAN}.isdisjoint(metadata.get("finalizers") or ()):
            self._leaving[place] = None
        return bool(self._due or self._leaving)

    def _gone(self, uid: str, place: Place, owners: list[dict[str, Any]] | None) -> bool:
        if self._alive.get(uid) == place:
            del self._alive[uid]
        self._due.update(dict.fromkeys(self._dependents.get(uid, ())))
        self._unlink(owners, place)
        for owner in owners or ():
            where = self._alive.get(owner["uid"])
            if where is not None and self._is_foreground(where):
                self._leaving[where] = None
        return bool(self._due or self._leaving)

    def _unlink(self, owners: list[dict[str, Any]] | None, place: Place) -> None:
        for owner in owners or ():
            named = self._dependents.get(owner["uid"])
            if named is not None:
                named.discard(place)
                if not named:
                    del self._dependents[owner["uid"]]

    def run(self) -> None:
        while self._due or self._leaving:
            due, self._due = self._due, {}
            for place in due:
                reconcile_alone(self._collect, place)
            leaving, self._leaving = self._leaving, {}
            for place in leaving:
                reconcile_alone(self._let_go, place)

    def _record(self, place: Place) -> tuple[ResourceInfo, Record] | None:
        table = self._api.store.find_table(place[0])
        record = table.records.get(place[1]) if table is not None else None
        info = self._api.storage_info(table.kind) if table is not None else None
        return None if record is None or info is None else (info, record)

    def _is_foreground(self, place: Place) -> bool:
        found = self._record(place)
        if found is None:
            return False
        metadata = found[1].obj["metadata"]
        return "deletionTimestamp" in metadata and FOREGROUND in (metadata.get("finalizers") or ())

    def _owner_of(self, owner: dict[str, Any], dependent: Record) -> Place | None:
        """Where an owner is, if it is one that `dependent` may have."""
        place = self._alive.get(owner["uid"])
        if place is None:
            return None
        found = self._record(place)
        if found is None:
            return None
        namespace = found[1].obj["metadata"].get("namespace")
        if namespace and namespace != dependent.obj["metadata"].get("namespace"):
            return None
        return place

    def _collect(self, place: Place) -> None:
        """Delete an object whose owners are all gone; otherwise remove the references to those that are."""
        found = self._record(place)
        if found is None:
            return
        info, record = found
        metadata = record.obj["metadata"]
        owners: list[dict[str, Any]] = metadata.get("ownerReferences") or []
        if not owners or ("deletionTimestamp" in metadata and not self._is_foreground(place)):
            return
        places = [self._owner_of(owner, record) for owner in owners]
        waiting = [where is not None and self._is_foreground(where) for where in places]
        if any(where is not None and not wait for where, wait in zip(places, waiting, strict=True)):
            kept = [
                owner
                for owner, where, wait in zip(owners, places, waiting, strict=True)
                if where is not None and not wait
            ]
            if len(kept) < len(owners):
                self._rewrite(info, record, "ownerReferences", kept)
            return
        finalizers = metadata.get("finalizers") or ()
        policy = "Background"
        if any(waiting) and self._dependents.get(metadata["uid"]):
            policy = "Foreground"
        elif ORPHAN in finalizers:
            policy = "Orphan"
        elif FOREGROUND in finalizers:
            policy = "Foreground"
        wanted = Preconditions(uid=metadata["uid"])
        delete_object(self._api, info, record, DeleteOptions(propagationPolicy=policy, preconditions=wanted))

    def _let_go(self, place: Place) -> None:
        """Take our finalizer off an owner once its dependents are dealt with."""
        found = self._record(place)
        if found is None:
            return
        info, record = found
        metadata = record.obj["metadata"]
        finalizers: list[str] = metadata.get("finalizers") or []
        if "deletionTimestamp" not in metadata:
            return
        dependents = [where for where in self._dependents.get(metadata["uid"], ()) if self._record(where) is not None]
        if ORPHAN in finalizers:
            for where in dependents:
                self._orphan(where, metadata["uid"])
            self._rewrite(info, record, "finalizers", [name for name in finalizers if name != ORPHAN])
        elif FOREGROUND in finalizers:
            if not any(self._blocks(where, metadata["uid"]) for where in dependents):
                self._rewrite(info, record, "finalizers", [name for name in finalizers if name != FOREGROUND])
            for where in dependents:
                if not self._is_foreground(where):
                    self._due[where] = None

    def _blocks(self, place: Place, uid: str) -> bool:
        found = self._record(place)
        owners = found[1].obj["metadata"].get("ownerReferences") or () if found is not None else ()
        return any(owner["uid"] == uid and owner.get("blockOwnerDeletion") for owner in owners)

    def _orphan(self, place: Place, uid: str) -> None:
        found = self._record(place)
        if found is None:
            return
        info, record = found
        owners = record.obj["metadata"].get("ownerReferences") or []
        self._rewrite(info, record, "ownerReferences", [owner for owner in owners if owner["uid"] != uid])

    def _rewrite(self, info: ResourceInfo, record: Record, field: str, values: list[Any]) -> None:
        """Store the object with another list in its metadata, as kube-controller-manager would."""
        metadata = {key: value for key, value in record.obj["metadata"].items() if key != field}
        if values:
            metadata[field] = values
        try:
            change(self._api, info, record, {**record.obj, "metadata": metadata}, MANAGER, [], tracked=info.converts)
        except StatusError:
            return  # an object that no longer fits its own rules stays as it is
