"""TPC-DS at a small scale with nonempty results: more stores, and other parameters of queries.

At scale 0.01 there is one store, warehouse, web site, web page, call center and reason, so joins by
them select nothing. These tables get further rows, and the sales are distributed among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.support.surroundings.tpc import Workload

#: Table -> key, number of rows, and values of columns for each row.
_MORE: dict[str, tuple[str, int, dict[str, tuple[Any, ...]]]] = {
    "store": ("s_store_sk", 6, {
        "s_store_id": tuple("ABCDEF"),
        "s_store_name": ("ought", "able", "ese", "anti", "cally", "bar"),
        "s_state": ("TN", "TN", "TN", "TX", "KY", "GA"),
        "s_county": ("Williamson County", "Franklin Parish", "Bronx County", "Orange County",
                     "Ziebach County", "Walker County"),
        "s_city": ("Midway", "Fairview", "Oakland", "Woodland", "Marion", "Midway"),
        "s_zip": ("31904", "54854", "30399", "64854", "35804", "28877"),
        "s_market_id": (2, 8, 8, 5, 8, 2),
    }),
    "warehouse": ("w_warehouse_sk", 4, {"w_warehouse_name": ("one", "two", "three", None)}),
    "web_site": ("web_site_sk", 3, {"web_company_name": ("pri", "cally", "able")}),
    "web_page": ("wp_web_page_sk", 3, {"wp_char_count": (5100, 539, 5200)}),
    "call_center": ("cc_call_center_sk", 3, {
        "cc_county": ("Williamson County", "Ziebach County", "Walker County"),
        "cc_name": ("NY Metro", "Mid Atlantic", "California"),
    }),
    "reason": ("r_reason_sk", 30, {
        "r_reason_desc": tuple(f"reason {n}" for n in range(1, 31)),
    }),
}  # fmt: skip
#: Suffix of a column's name -> the table whose key it has.
_KEYS = {
    "_store_sk": "store",
    "_warehouse_sk": "warehouse",
    "_web_site_sk": "web_site",
    "_web_page_sk": "web_page",
    "_call_center_sk": "call_center",
    "_reason_sk": "reason",
}
#: Prefixes of the columns of sales, returns and inventories.
_FACTS = ("ss_", "sr_", "cs_", "cr_", "ws_", "wr_", "inv_")
_YEARS = (("dyear = 2001+1", "dyear > 2000"), ("dyear = 2001 ", "dyear <= 2000 "))
#: Query -> (text with single spaces, replacement) pairs.
PARAMETERS: dict[int, tuple[tuple[str, str], ...]] = {
    3: (("i_manufact_id = 128", "i_manufact_id < 400"),),
    4: _YEARS,
    8: (("count(*) > 10", "count(*) > 0"), ("('24128'", "('54854', '30399', '64854', '24128'")),
    10: (
        ("'Rush County', 'Toole County'", "'Madison County', 'Grant County', 'Crawford County'"),
        ("d_year = 2002 AND d_moy BETWEEN 1 AND 1+3", "d_year >= 1998"),
    ),
    11: _YEARS,
    13: (
        ("d_year = 2001", "d_year >= 1998"),
        ("hd_dep_count = 3", "hd_dep_count >= 0"),
        ("hd_dep_count = 1", "hd_dep_count >= 0"),
        ("BETWEEN 50.00 AND 100.00", "BETWEEN 10.00 AND 100.00"),
        ("BETWEEN 100 AND 200", "BETWEEN -1000 AND 2000"),
        ("BETWEEN 50 AND 250", "BETWEEN -1000 AND 2500"),
    ),
    16: (("'2002-02-01' AND cast('2002-04-02'", "'1998-02-01' AND cast('2002-04-02'"),),
    19: (("i_manager_id=8", "i_manager_id < 40"),),
    23: (("count(*) >4", "count(*) > 1"), ("(50/100.0)", "(5/100.0)"), ("d_moy = 2", "d_moy > 2")),
    24: (("i_color = 'peach'", "i_color <> 'peach'"),),
    25: (
        ("d1.d_moy = 4 AND d1.d_year = 2001", "d1.d_year >= 1998"),
        ("BETWEEN 4 AND 10 AND d2.d_year = 2001", "BETWEEN 1 AND 12"),
        ("BETWEEN 4 AND 10 AND d3.d_year = 2001", "BETWEEN 1 AND 12"),
    ),
    30: (("d_year = 2002", "d_year >= 1998"),),
    31: (("ca_county", "ca_state"), ("END > CASE", "END <> CASE")),
    32: (("i_manufact_id = 977", "i_manufact_id < 500"), ("2000-04-26", "2001-04-26")),
    37: (
        ("BETWEEN 68 AND 68 + 30", "BETWEEN 1 AND 68 + 30"),
        ("IN (677, 940, 694, 808)", "IN (310, 445, 117, 168, 808)"),
    ),
    38: (("BETWEEN 1200 AND 1200 + 11", "BETWEEN 1100 AND 1300"), ("d_date FROM", "d_year FROM")),
    41: (
        ("BETWEEN 738 AND 738+40", "BETWEEN 1 AND 1000"),
        ("'powder'", "'rosy'"),
        ("'Ounce'", "'Bunch'"),
        ("'extra large'", "'petite'"),
    ),
    49: (("> 10000", "> 100"), ("d_year = 2001 AND d_moy = 12", "d_year = 2001")),
    54: (
        ("i_class = 'maternity'", "i_class <> 'maternity'"),
        ("ca_county = s_county AND ca_state = s_state", "ca_state = s_state"),
    ),
    58: (("0.9 *", "0.01 *"), ("1.1 *", "100 *")),
    64: (
        ("i_color IN (", "i_color NOT IN ("),
        ("BETWEEN 64 AND 64 + 10", "BETWEEN 0 AND 100"),
        ("BETWEEN 64 + 1 AND 64 + 15", "BETWEEN 0 AND 100"),
        ("cd1.cd_marital_status <> cd2.cd_marital_status", "cd1.cd_gender <> cd2.cd_gender"),
    ),
    73: (("cnt BETWEEN 1 AND 5", "cnt BETWEEN 1 AND 50"),),
    74: (
        ("d_year IN (2001, 2001+1)", "d_year >= 1998"),
        *((old.replace("dyear", "year_"), new.replace("dyear", "year_")) for old, new in _YEARS),
    ),
    82: (
        ("BETWEEN 62 AND 62+30", "BETWEEN 1 AND 62+30"),
        ("IN (129, 270, 821, 423)", "IN (310, 445, 117, 168, 423)"),
    ),
    83: (
        (
            "IN ('2000-06-30', '2000-09-27', '2000-11-17')",
            "BETWEEN '1999-06-30' AND '2001-11-17'",
        ),
    ),
    85: (
        ("d_year = 2000", "d_year >= 1998"),
        (" AND cd1.cd_marital_status = cd2.cd_marital_status", ""),
        (" AND cd1.cd_education_status = cd2.cd_education_status", ""),
        ("BETWEEN 100 AND 200", "BETWEEN -1000 AND 2000"),
        ("BETWEEN 150 AND 300", "BETWEEN -1500 AND 3000"),
        ("'LA', 'IA', 'AR'", "'TX', 'GA', 'KS'"),
    ),
    91: (
        ("d_year = 1998 AND d_moy = 11", "d_year >= 1998"),
        ("LIKE 'Unknown%'", "LIKE '%0%'"),
        ("ca_gmt_offset = -7", "ca_gmt_offset <= -5"),
    ),
    92: (("i_manufact_id = 350", "i_manufact_id < 500"), ("2000-04-26", "2001-04-26")),
    94: (("'1999-02-01' AND cast('1999-04-02'", "'1999-02-01' AND cast('2002-04-02'"),),
    96: (("hd_dep_count = 7", "hd_dep_count > 2"),),
}


def widened(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables with more stores, warehouses, web sites, web pages, call centers and reasons."""
    found, drawn = dict(tables), np.random.default_rng(7)
    for name, (key, count, values) in _MORE.items():
        table = pa.concat_tables([tables[name].slice(0, 1)] * count)
        for column, given in {key: tuple(range(1, count + 1)), **values}.items():
            at = table.schema.get_field_index(column)
            kind = table.schema.field(at).type
            table = table.set_column(at, column, pa.array(list(given), kind))
        found[name] = table
    for name, table in found.items():
        for column in table.column_names:
            end = next((end for end in _KEYS if column.endswith(end)), None)
            if end is None or not column.startswith(_FACTS):
                continue
            count = _MORE[_KEYS[end]][1]
            keys = pa.array(drawn.integers(1, count + 1, table.num_rows), table[column].type)
            if column in ("ss_store_sk", "sr_store_sk"):
                # All rows of a ticket are of one store.
                ticket = table[column.replace("store_sk", "ticket_number")].to_numpy()
                keys = pa.array(ticket % count + 1, table[column].type)
            at = table.schema.get_field_index(column)
            kept = pc.if_else(pc.is_valid(table[column]), keys, None)
            table = table.set_column(at, column, kept)
        found[name] = table
    return found


def text_of(given: Workload, number: int) -> str:
    """Return a query of the benchmark on one line, with its parameters replaced.

    Raises:
        ValueError: the query does not contain the text of a parameter.
    """
    lines = (line.partition("--")[0] for line in given.queries[number].splitlines())
    text = " ".join(" ".join(lines).split()).rstrip("; ")
    for old, new in PARAMETERS.get(number, ()):
        if old not in text:
            raise ValueError(f"query {number} has no {old!r}")
        text = text.replace(old, new)
    return text
