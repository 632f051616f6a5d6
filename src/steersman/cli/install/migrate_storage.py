"""`steersman migrate-storage`: objects of old versions are stored in the storage version, which alone is listed then.

What kube-storage-version-migrator does, for custom kinds: every object gets a patch that changes nothing. The API
server writes an object in the storage version, and only if that differs from what it has. When all objects are written,
`status.storedVersions` of the definition is set to the storage version, so other versions may be removed from it.

Invariant: `storedVersions` is trimmed only after every object was written, and only if the storage version is still the
one they were written in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from steersman.cli.exit_codes import exit_code
from steersman.cli.kube_options import kube_options
from steersman.cli.output import output_option

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rich.console import Console

    from steersman.kube.client.client import Client

AT_ONCE = 16  # requests in flight
ATTEMPTS = 5  # to trim storedVersions, while others write to the definition as well


class StorageMigration(msgspec.Struct, kw_only=True, rename="camel"):
    """What the migration of one definition found and did."""

    definition: str
    storage_version: str
    stored_versions: list[str]  # before
    objects: int = 0  # written in the storage version, or checked by a dry run
    failures: list[str] = []

    @property
    def is_needed(self) -> bool:
        """Whether objects may be stored in another version."""
        return self.stored_versions != [self.storage_version]


@click.command("migrate-storage")
@click.argument("definitions", nargs=-1, required=True, metavar="PLURAL.GROUP...")
@click.option("--dry-run", is_flag=True, help="Write nothing: have the API server check every write.")
@kube_options
@output_option()
@click.pass_context
def command(
    ctx: click.Context,
    definitions: tuple[str, ...],
    dry_run: bool,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """Store all objects of custom kinds in the storage version, in all namespaces.

    After that, an old version can be removed from the definition. The exit code is 1 if an object cannot be written,
    and storedVersions is unchanged then. With --dry-run, it is 3 when there is something to migrate.

    \b
    Examples:
      steersman migrate-storage sites.example.org --dry-run
      steersman migrate-storage sites.example.org
    """
    import asyncio

    from steersman.cli.output import print_table, show

    if namespace is not None:
        raise click.UsageError("--namespace: objects of all namespaces are migrated together")
    found = asyncio.run(_migrate_all(kubeconfig, context, definitions, dry_run=dry_run))

    def table(to: Console) -> None:
        rows = [(row.definition, row.storage_version, ", ".join(row.stored_versions), _outcome(row)) for row in found]
        print_table(to, ["definition", "storage version", "stored versions", "objects"], rows)

    def _outcome(row: StorageMigration) -> str:
        if not row.is_needed:
            return "nothing to migrate"
        done = "would be written" if dry_run else "written"
        return f"{row.objects} {done}" + (f", {len(row.failures)} failed" if row.failures else "")

    show(found, output, table)
    failures = [failure for row in found for failure in row.failures]
    for failure in failures:
        click.echo(f"error: {failure}", err=True)
    ctx.exit(exit_code(found=dry_run and any(row.is_needed for row in found), error=bool(failures)))


async def _migrate_all(
    kubeconfig: Path | None, context: str | None, names: Iterable[str], *, dry_run: bool
) -> list[StorageMigration]:
    from steersman.cli.kube_options import cluster_config
    from steersman.kube.client.client import Client

    async with Client.connect(cluster_config(kubeconfig, context)) as client:
        return [await migrate(client, name, dry_run=dry_run) for name in dict.fromkeys(names)]


async def migrate(client: Client, name: str, *, dry_run: bool = False) -> StorageMigration:
    """Migrate the objects of the definition `name`; those that cannot be written are named, and nothing is trimmed."""
    import asyncio

    from steersman.errors import SteersmanError
    from steersman.kube.api.errors import KubeError, NotFound
    from steersman.kube.api.gvk import Kind
    from steersman.kube.api.objects import PartialObjectMetadata
    from steersman.runtime.webhook.certificate_source import DEFINITIONS

    live = await client.get(DEFINITIONS, name)
    spec, version = live["spec"], _storage_version(live)
    migration = StorageMigration(
        definition=name, storage_version=version, stored_versions=live["status"]["storedVersions"]
    )
    if not migration.is_needed:
        return migration
    served = [row["name"] for row in spec["versions"] if row["served"]]
    if not served:
        raise SteersmanError(f"{name}: no version is served, so no object can be written (serve one with served: true)")
    kind = Kind(
        group=spec["group"],
        version=version if version in served else served[0],
        kind=spec["names"]["kind"],
        plural=spec["names"]["plural"],
        namespaced=spec["scope"] == "Namespaced",
    )

    async def write(obj: Any) -> str | None:
        """Why the object was not written; None when it was, or when it is gone."""
        try:
            await client.patch(kind, obj.name, {}, namespace=obj.namespace or None, dry_run=dry_run)
        except NotFound:
            return None
        except KubeError as error:
            return f"{name} {obj.ref}: {error}"
        return None

    objects = (await client.list(kind, into=PartialObjectMetadata)).items
    for start in range(0, len(objects), AT_ONCE):
        outcomes = await asyncio.gather(*map(write, objects[start : start + AT_ONCE]))
        migration.failures += [problem for problem in outcomes if problem is not None]
    migration.objects = len(objects) - len(migration.failures)
    if not migration.failures and not dry_run:
        await _trim(client, name, version)
    return migration


async def _trim(client: Client, name: str, version: str) -> None:
    from steersman.errors import SteersmanError
    from steersman.kube.api.errors import Conflict
    from steersman.runtime.webhook.certificate_source import DEFINITIONS

    for attempt in range(ATTEMPTS):
        live = await client.get(DEFINITIONS, name)
        if (now := _storage_version(live)) != version:
            raise SteersmanError(f"{name}: the storage version became {now} meanwhile: migrate again")
        guard = {"resourceVersion": live["metadata"]["resourceVersion"]}
        patch = {"metadata": guard, "status": {"storedVersions": [version]}}
        try:
            await client.patch(DEFINITIONS, name, patch, subresource="status")
        except Conflict:
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return


def _storage_version(definition: dict[str, Any]) -> str:
    return next(str(version["name"]) for version in definition["spec"]["versions"] if version["storage"])
