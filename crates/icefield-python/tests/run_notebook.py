"""Execute a notebook and compare what it prints with what is stored in it; `--write` stores it."""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    """Return what each cell prints."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return ["".join(part.get("text", "") for part in cell.outputs) for cell in cells]


path = Path(sys.argv[1])
stored = nbformat.read(path, as_version=4)
run = nbformat.read(path, as_version=4)
NotebookClient(run, timeout=120, kernel_name="python3").execute()
if "--write" in sys.argv:
    for cell in run.cells:
        cell.metadata.clear()
    run.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.write(run, path)
elif printed(run) != printed(stored):
    sys.exit(f"{path}: a cell prints something else; run with --write\n{printed(run)}\n{printed(stored)}")
