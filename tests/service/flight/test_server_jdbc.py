"""Tests of Arrow Flight SQL by Apache Arrow's JDBC driver, whose jar ``ANABRANCH_FLIGHT_JDBC``
names.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from anabranch_client.processes.children import free_port
from anabranch_service.settings import Auth, ServiceSettings
from tests.service.flight.test_server import world
from tests.support.surroundings.certificates import authority, certificate
from tests.support.worlds.service import serving

JAR = Path(os.environ.get("ANABRANCH_FLIGHT_JDBC", "absent"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not JAR.is_file(), reason="ANABRANCH_FLIGHT_JDBC names no jar"),
]
#: Java program that prints rows of statements, or the driver's metadata, one per line.
PROGRAM = """
import java.sql.*;

class Read {
  public static void main(String[] given) throws Exception {
    try (Connection service = DriverManager.getConnection(given[0])) {
      for (int i = 1; i < given.length; i++) {
        try {
          if (given[i].equals("columns")) {
            print(service.getMetaData().getColumns(null, null, "%", "%"), 3, 4, 6);
          } else if (i % 2 == 0) {
            try (Statement statement = service.createStatement()) {
              print(statement.executeQuery(given[i]));
            }
          } else {
            try (PreparedStatement statement = service.prepareStatement(given[i])) {
              print(statement.executeQuery());
            }
          }
        } catch (SQLException refused) {
          System.out.println("refused: " + refused.getMessage() + " " + refused.getCause());
        }
      }
    }
  }

  static void print(ResultSet rows, int... chosen) throws SQLException {
    try (rows) { lines(rows, chosen); }
  }

  static void lines(ResultSet rows, int... chosen) throws SQLException {
    while (rows.next()) {
      StringBuilder line = new StringBuilder();
      for (int i = 1; i <= rows.getMetaData().getColumnCount(); i++) {
        final int column = i;
        if (chosen.length == 0 || java.util.stream.IntStream.of(chosen).anyMatch(c -> c == column))
          line.append(rows.getString(i)).append(' ');
      }
      System.out.println(line.toString().strip());
    }
  }
}
"""


def read(folder: Path, port: int | str, options: str, *statements: str, code: int = 0) -> list[str]:
    """Return the lines that the program prints."""
    program = folder / "Read.java"
    program.write_text(PROGRAM)
    url = f"jdbc:arrow-flight-sql://127.0.0.1:{port}?{options}"
    command = ["java", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", str(JAR)]
    done = subprocess.run(
        [*command, str(program), url, *statements],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout.splitlines() if code == 0 else done.stderr.splitlines()


def test_statements_and_metadata(settings: ServiceSettings, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    statements = (
        "SELECT order_id, city FROM pairs ORDER BY order_id",
        "SELECT count(*) FROM anabranch.queries.pairs p JOIN sums s ON s.n > p.order_id",
        "columns",
        "SELECT TIMESTAMPTZ '2026-01-31 10:00:00Z', DATE '2026-01-31', 2.50::DECIMAL(9,2), [1, 2], "
        "NULL, true",
        "SELECT count(i) FROM (SELECT i FROM range(100000) r(i))",
        "DROP TABLE pairs",
    )
    with world(settings, tmp_path / "results") as running:
        for batch in range(3):
            running.commit(batch)
        port = running.uri.rpartition(":")[2]
        found = read(tmp_path, port, "useEncryption=false", *statements)
    assert found[:4] == ["0 city 0", "1 city 1", "2 city 2", "3"]
    assert found[4:8] == [
        *("pairs order_id BIGINT", "pairs city VARCHAR"),
        *("sums customer_id BIGINT", "sums n BIGINT"),
    ]
    assert found[8] == "2026-01-31 10:00:00.0 2026-01-31 2.50 [1,2] null true"
    assert found[9] == "100000"
    assert found[10].startswith("refused: ")
    assert "sql-refused (sql): only SELECT" in found[10]
    assert len(found) == 11


def test_tokens_and_certificates(settings: ServiceSettings, tmp_path: Path) -> None:
    token_file = str(tmp_path / "admin.token")
    (tmp_path / "results").mkdir()
    required = {"auth": Auth.REQUIRED, "admin_token_file": token_file}
    with world(settings, tmp_path / "results", **required) as found:
        found.commit(0)
        port = found.uri.rpartition(":")[2]
        token = found.service.post("/v1/tokens", {"name": "reader", "role": "viewer"})["token"]
        for given in (f"token={token}", f"user=token&password={token}"):
            options = f"useEncryption=false&{given}"
            assert read(tmp_path, port, options, "SELECT city FROM pairs") == ["city 0"]
        (refused,) = read(tmp_path, port, "useEncryption=false", "SELECT 1")
        assert "no-token (Authorization)" in refused
        errors = read(tmp_path, port, "useEncryption=false&token=wrong", "SELECT 1", code=1)
        assert any("bad-token (Authorization)" in line for line in errors)


def test_encrypted_calls(settings: ServiceSettings, tmp_path: Path) -> None:
    signed_by = authority(tmp_path)
    chain, port = certificate(signed_by, "service"), free_port()
    key = str(chain.with_suffix(".key"))
    with serving(settings.changed(flight_port=port, tls_cert=str(chain), tls_key=key)):
        assert read(tmp_path, port, f"tlsRootCerts={signed_by}", "SELECT 1") == ["1"]
