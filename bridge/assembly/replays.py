"""The ends by which a node sends a replay plan's messages again, each made by the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from bridge.assembly.bridges import REPLAYS, Assembly
from bridge.assembly.relay_options import stages
from bridge.errors import Conflict
from bridge.relay.stages import filter_stage
from bridge.replay.plans import Ends, ReplayService, Route
from bridge.settings.bridges import Bridge
from bridge.settings.model import Settings


def replay_service(settings: Settings, assembly: Assembly) -> ReplayService:
    """The replay service of a node, for all its bridges."""
    return ReplayService(replay_routes(settings, assembly))


def replay_routes(settings: Settings, assembly: Assembly) -> Mapping[str, Sequence[Route]]:
    """The routes of replay plans, by the bridge's name: one for each of its connectors, in their order."""
    return {
        bridge.name: [partial(_ends, assembly, bridge.by(name)) for name in bridge.static_connectors]
        for bridge in settings.bridges
    }


def _ends(assembly: Assembly, bridge: Bridge, *, force: bool) -> Ends:
    """Both ends of `bridge`, for one call. Raises: Conflict: its kinds of end cannot replay."""
    source_name, target_name = bridge.source_connector, bridge.static_connectors[0]
    source = assembly.ends_of(source_name).plan_source(bridge)
    if source is None:
        raise _no_replay(bridge, f"{source_name} cannot read again what it has sent", source_name)
    found = assembly.ends_of(target_name).plan_target(bridge, source, force=force)
    if found is None:
        raise _no_replay(bridge, f"{target_name} cannot take what is sent again", target_name)
    passes, whole_bodies = filter_stage(bridge.filter), assembly.whole_bodies(bridge)
    passed = stages(bridge, passes, lambda: source.store, whole_bodies=whole_bodies)
    return Ends(source, *found, passed, assembly.transforming(bridge, REPLAYS))


def _no_replay(bridge: Bridge, why: str, connector: str) -> Conflict:
    return Conflict(f"bridge {bridge.name} cannot replay: {why}", key="bridge", found=connector)
