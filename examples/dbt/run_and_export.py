"""Runs dbt, then writes each model that says `meta: {export: FILE}` to this file.

dbt's own hooks run SQL inside the database, so a program that runs dbt has to start what happens outside of it:

    SHOP_HOST=localhost SHOP_PORT=5432 … python run_and_export.py OUT
"""

from __future__ import annotations

import os
import pathlib
import sys
from urllib.parse import quote

from dbt.cli.main import dbtRunner

import rapidbyte as rb


def main(out: pathlib.Path) -> None:
    folder = str(pathlib.Path(__file__).parent)
    done = dbtRunner().invoke(["run", "--project-dir", folder, "--profiles-dir", folder])
    if not done.success:
        sys.exit(f"dbt failed: {done.exception or 'see its log'}")
    for result in done.result.results:
        node = result.node
        # Newer versions of dbt have it in the configuration alone.
        meta = node.config.meta or getattr(node, "meta", {})
        if file := meta.get("export"):
            report = rb.run(
                {
                    "version": 1,
                    "pipeline": f"export-{node.name.replace('_', '-')}",
                    "source": {
                        "use": "source-postgres",
                        "config": {"url": "${URL}"},
                        "streams": [f"{node.schema}.{node.name}"],
                    },
                    "destination": {
                        "use": "dest-file",
                        "config": {"path": str(out / file)},
                        "write_mode": "replace",
                    },
                },
                params={"URL": url()},
            )
            print(f"{node.name}: {report.rows} rows to {out / file}")


def url() -> str:
    get = os.environ
    login = ":".join(quote(get[name], safe="") for name in ("SHOP_USER", "SHOP_PASSWORD") if get.get(name))
    return f"postgres://{login}@{get['SHOP_HOST']}:{get['SHOP_PORT']}/{get['SHOP_DATABASE']}"


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
