"""Five further queries over the demo's TPC-H tables, for benchmarks of sharing."""

from __future__ import annotations

from anabranch_client.replay.tpch import DemoQuery

_LINEITEM = "JOIN lineitem ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey"

#: Five queries that overlap with the demo's five and with each other.
OVERLAPPING = (
    DemoQuery(
        "q6",
        "r_name, n_name, s_name, p_name, ps_availqty",
        "region JOIN nation ON n_regionkey = r_regionkey "
        "JOIN supplier ON s_nationkey = n_nationkey "
        "JOIN partsupp ON ps_suppkey = s_suppkey "
        "JOIN part ON p_partkey = ps_partkey",
        ("region", "nation", "supplier", "partsupp", "part"),
    ),
    DemoQuery(
        "q7",
        "n_name, s_suppkey, ps_partkey, l_orderkey, l_linenumber, l_quantity",
        "nation JOIN supplier ON s_nationkey = n_nationkey "
        f"JOIN partsupp ON ps_suppkey = s_suppkey {_LINEITEM}",
        ("nation", "supplier", "partsupp", "lineitem"),
    ),
    DemoQuery(
        "q8",
        "p_brand, ps_supplycost, l_orderkey, l_linenumber, l_discount",
        f"part JOIN partsupp ON ps_partkey = p_partkey {_LINEITEM}",
        ("part", "partsupp", "lineitem"),
    ),
    DemoQuery(
        "q9",
        "s_name, p_brand, l_linenumber, l_shipmode, o_orderkey, o_orderpriority",
        "supplier JOIN partsupp ON ps_suppkey = s_suppkey "
        f"JOIN part ON p_partkey = ps_partkey {_LINEITEM} "
        "JOIN orders ON o_orderkey = l_orderkey",
        ("supplier", "partsupp", "part", "lineitem", "orders"),
    ),
    DemoQuery(
        "q10",
        "n_name, s_suppkey, l_extendedprice, l_linenumber, o_orderkey, o_custkey",
        "nation JOIN supplier ON s_nationkey = n_nationkey "
        f"JOIN partsupp ON ps_suppkey = s_suppkey {_LINEITEM} "
        "JOIN orders ON o_orderkey = l_orderkey",
        ("nation", "supplier", "partsupp", "lineitem", "orders"),
    ),
)
