"""``docs/walk.md`` shows the table as it is. Run this file to print it there anew."""

from pathlib import Path

from ares.walk.table import as_markdown

PAGE = Path(__file__).resolve().parents[2] / "docs" / "walk.md"
BEGIN = "<!-- table: printed from ares.walk.table -->\n"
END = "<!-- end of table -->\n"


def printed(page: str) -> str:
    """The page with the table as it is now."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{as_markdown()}\n{END}{rest.partition(END)[2]}"


def test_the_page_shows_the_table_as_it_is():
    page = PAGE.read_text("utf-8")

    assert page == printed(page)


if __name__ == "__main__":
    PAGE.write_text(printed(PAGE.read_text("utf-8")), "utf-8")
