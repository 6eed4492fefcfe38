"""The same comparison in DuckDB: interval sweep, order and repeated IDs, in SQL over the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import duckdb

#: Lines whose IDs are opened with one statement: DuckDB takes 2048 at a time, which no memory is enough for.
AT_ONCE: Final = 250

_COLUMNS: Final = """{
    side: 'VARCHAR', bridge: 'VARCHAR', stream: 'VARCHAR', address: 'VARCHAR', store: 'VARCHAR',
    lane: 'BIGINT', "from": 'BIGINT', upto: 'BIGINT', runs: 'BIGINT[][]', refused: 'BIGINT[]',
    ids: 'VARCHAR', events: 'BIGINT[]', committed: 'BIGINT', duplicates: 'BIGINT', verdict: 'VARCHAR'
}"""

#: Equal lines are one event: a sender's where they cover the same, a receiver's where they say the same.
_LINES: Final = """
create temp table lines as
select side, hash(bridge, stream, store) as flow, any_value(stream) as stream, any_value(store) as store,
    any_value(address) as address, lane, any_value(node) as node, "from", upto, runs,
    any_value(refused) as refused,
    any_value(case when side = 'received' and ids <> '[]' then ids end) as ids, min(place) as place
from (
    select *, regexp_extract(filename, '([^/]+)-[0-9T]+-[0-9]+[.]jsonl$', 1) as node,
        row_number() over () as place
    from read_json($files, format = 'newline_delimited', filename = true, maximum_object_size = 268435456,
        columns = COLUMNS)
)
where verdict is null
group by side, bridge, stream, store, lane, "from", upto, runs,
    case when side = 'received' then committed end
""".replace("COLUMNS", _COLUMNS)

#: Between two points nothing changes: s, r messages and cs, cr coverage of the sides, f refused.
_SWEEP: Final = """
create temp table intervals as
with runs_of as (
    select flow, (side = 'sent')::int as s, (side = 'received')::int as r, unnest(runs) as run from lines
), refused_at as (
    select flow, unnest(refused) as p from lines
), changes as (
    select flow, run[1] as p, s, r, 0 as cs, 0 as cr, 0 as f from runs_of
    union all select flow, run[2] + 1, -s, -r, 0, 0, 0 from runs_of
    union all select flow, "from", 0, 0, (side = 'sent')::int, (side = 'received')::int, 0 from lines
    union all select flow, upto, 0, 0, -(side = 'sent')::int, -(side = 'received')::int, 0 from lines
    union all select flow, p, 0, 0, 0, 0, 1 from refused_at
    union all select flow, p + 1, 0, 0, 0, 0, -1 from refused_at
), summed as (
    select flow, p, sum(s) as s, sum(r) as r, sum(cs) as cs, sum(cr) as cr, sum(f) as f
    from changes group by flow, p
)
select flow, p, lead(p) over points - p as n, sum(s) over points as s, sum(r) over points as r,
    sum(cs) over points as cs, sum(cr) over points as cr, sum(f) over points as f
from summed window points as (partition by flow order by p)
"""

_VERDICTS: Final = """
with sides as (
    select flow, min("from") filter (side = 'sent') as first_s, max(upto) filter (side = 'sent') as upto_s,
        min("from") filter (side = 'received') as first_r, max(upto) filter (side = 'received') as upto_r
    from lines group by flow
), judged as (
    select *,
        s > 0 and r = 0 and f = 0 as missing,
        s > 0 and cr = 0 and (upto_r is null or p < upto_r)
            or r > 0 and cs = 0 and (upto_s is null or p < upto_s)
            or cs = 0 and p >= first_s and p < upto_s or cr = 0 and p >= first_r and p < upto_r as unclear
    from intervals join sides using (flow)
)
select sum(n) filter (s > 0) as sent, sum(n) filter (r > 0) as received,
    sum(n) filter (missing and cr > 0 and p < upto_r) as lost,
    sum(n) filter (missing and p >= upto_r) as open,
    sum(n) filter (r > 1) as doubled,
    sum(n) filter (r > 0 and s = 0 and cs > 0) as unsent,
    sum(n) filter (unclear) as unknown
from judged
"""

_ORDER: Final = """
with before as (
    select *, max(upto) over (
        partition by flow, node, lane order by place rows between unbounded preceding and 1 preceding
    ) as highest
    from lines where side = 'received'
)
select coalesce(sum(list_sum(list_transform(runs, lambda run: run[2] - run[1] + 1))), 0)
from before where upto < highest
"""

#: Lines with IDs, and how many IDs were accepted at (store, address) before each.
_ACCEPTING: Final = """
create temp table accepting as
select *, sum(size) over (partition by store, address order by place) - size as base,
    row_number() over (order by place) as number
from (
    select store, address, flow, place, ids, json_array_length(ids) as size
    from lines where side = 'received' and stream like 'kafka:%' and ids is not null
)
"""
_ACCEPTED: Final = """
create temp table accepted (place UBIGINT, address UBIGINT, id UBIGINT, n BIGINT)
"""
#: A row for each ID: hashes, which is enough to compare speeds; `n` is its number at (store, address).
_OPEN: Final = """
insert into accepted
select hash(flow, pair[1]), hash(store, address), hash(pair[2]), base + k from (
    select store, address, flow, base, unnest(pairs) as pair, generate_subscripts(pairs, 1) as k
    from (
        select *, from_json(ids, '[["VARCHAR"]]') as pairs
        from accepting where number > $after and number <= $upto
    )
)
"""
_REPEATED: Final = """
select coalesce(sum(more), 0), coalesce(max(needed), 0)
from (
    select max(n) - min(n) as needed, count(distinct place) - 1 as more
    from accepted group by address, id having count(*) > 1
)
"""


def reconcile(directory: Path, memory: str, threads: int) -> dict[str, int]:
    """The findings of DuckDB: sums over all flows, under the names of `generate.Known`."""
    with duckdb.connect(config={"memory_limit": memory, "threads": threads}) as connection:
        connection.execute("set temp_directory = $there", {"there": str(directory / "duckdb")})
        connection.execute(_LINES, {"files": str(directory / "*.jsonl")})
        connection.execute(_SWEEP)
        result = connection.execute(_VERDICTS)
        names = [column[0] for column in result.description]
        found = dict(zip(names, (int(value or 0) for value in result.fetchall()[0]), strict=True))
        found["out-of-order"] = int(connection.execute(_ORDER).fetchall()[0][0])
        more, needed = _repeated(connection)
        return found | {"doubled": found["doubled"] + more, "needed": needed}


def _repeated(connection: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """Number of IDs accepted again, and the id-cache-size that would have rejected all of them."""
    connection.execute(_ACCEPTING)
    connection.execute(_ACCEPTED)
    (lines,) = connection.execute("select count(*) from accepting").fetchall()[0]
    for after in range(0, lines, AT_ONCE):
        connection.execute(_OPEN, {"after": after, "upto": after + AT_ONCE})
    more, needed = connection.execute(_REPEATED).fetchall()[0]
    return int(more), int(needed)
