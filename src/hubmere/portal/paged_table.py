"""A table that sends only the visible page of rows to the browser, whatever the number of items."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nicegui import ui
from nicegui.events import GenericEventArguments, ValueChangeEventArguments

from hubmere.portal.theme import action_handler

T = TypeVar("T")

ROWS_PER_PAGE = 25


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column: the value that it displays for an item, and the sort key if the column is sortable."""

    name: str
    label: str
    show: Callable[[T], object]
    sort: Callable[[T], Any] | None = None
    is_number: bool = False
    # Whether a long text is broken into lines, so that the columns beside it stay visible.
    wraps: bool = False
    # Whether a long text is cut, so that every row has one line; with `fills`, at the end of the space that is left.
    cuts: bool = False
    fills: bool = False


class _Table(ui.table, component="paged_table.js"):
    """The table in the browser; it keeps its buttons and links in the document while rows change."""


class PagedTable(Generic[T]):
    """A table with paging and sorting on the node."""

    def __init__(
        self,
        columns: Sequence[Column[T]],
        *,
        key: Callable[[T], str],
        href: Callable[[T], str] | None = None,
        actions: Callable[[T], Sequence[str]] | None = None,
        on_act: Callable[[str, str], Awaitable[None] | None] | None = None,
        on_row: Callable[[str], None] | None = None,
        actions_first: bool = False,
        sorted_by: str | None = None,
        empty_text: str = "No entries.",
    ) -> None:
        self._columns = {column.name: column for column in columns}
        self._key = key
        self._href = href
        self._actions = actions
        self._items: Sequence[T] = ()
        displayed = [_column(column) for column in columns]
        if actions is not None:
            index, align = (0, "left") if actions_first else (len(displayed), "right")
            # Without a field: NiceGUI would log a warning about the list in each row, which has its own template here.
            displayed.insert(index, {"name": "actions", "label": "Actions", "field": "", "align": align})
        pagination = {
            "rowsPerPage": ROWS_PER_PAGE,
            "page": 1,
            "sortBy": sorted_by,
            "descending": False,
            "rowsNumber": 0,
        }
        self._table = _Table(columns=displayed, rows=[], row_key="row_key", pagination=pagination).classes("h-table")
        self._table.props('flat dense :rows-per-page-options="[10, 25, 50, 100]"')
        if any(column.fills for column in columns):
            self._table.classes("h-one-line")
        self._table.on("request", self._on_request)
        self._table.on_pagination_change(self._on_pagination)
        self._table.props(':grid="Quasar.Screen.lt.sm"')
        self._table.props["empty-text"] = empty_text
        if href is not None:
            self._table.props["link-column"] = columns[0].name
        if on_row is not None:
            open_row = action_handler(on_row)
            self._table.classes("h-clickable").on("rowClick", lambda event: open_row(event.args[1]["row_key"]))
        if on_act is not None and not actions_first:
            self._table.classes("h-acts")
        if on_act is not None:
            handler = action_handler(on_act)
            self._table.on("act", lambda event: handler(event.args[0], event.args[1]))

    def show(self, items: Sequence[T]) -> None:
        """Display items; the chosen page, sort order and page size stay."""
        self._items = items
        self._draw(dict(self._table.pagination))

    def visible(self, items: Sequence[T]) -> Sequence[T]:
        """The items on the current page."""
        return self._page(items, self._table.pagination)

    def _on_request(self, event: GenericEventArguments) -> None:
        self._draw(event.args["pagination"])

    def _on_pagination(self, _: ValueChangeEventArguments[dict[str, Any]]) -> None:
        # The browser reports its pagination as it knew it before the last rows: their number would be lost.
        if self._table.pagination.get("rowsNumber") != len(self._items):
            self._draw(dict(self._table.pagination))

    def _page(self, items: Sequence[T], pagination: Mapping[str, Any]) -> Sequence[T]:
        column = self._columns.get(pagination.get("sortBy") or "")
        if column is not None and column.sort is not None:
            items = sorted(items, key=column.sort, reverse=bool(pagination.get("descending")))
        size = int(pagination.get("rowsPerPage") or ROWS_PER_PAGE)
        first = (int(pagination.get("page") or 1) - 1) * size
        return items[first : first + size]

    def _draw(self, pagination: dict[str, Any]) -> None:
        pagination["rowsNumber"] = len(self._items)
        size = int(pagination.get("rowsPerPage") or ROWS_PER_PAGE)
        last_page = max(-(-len(self._items) // size), 1)
        pagination["page"] = min(int(pagination.get("page") or 1), last_page)
        rows = [self._row(item) for item in self._page(self._items, pagination)]
        if rows != self._table.rows:
            self._table.rows = rows
        if pagination != self._table.pagination:
            self._table.pagination = pagination

    def _row(self, item: T) -> dict[str, object]:
        row: dict[str, object] = {name: column.show(item) for name, column in self._columns.items()}
        row["row_key"] = self._key(item)
        if self._href is not None:
            row["href"] = self._href(item)
        if self._actions is not None:
            row["actions"] = list(self._actions(item))
        return row


def _column(column: Column[Any]) -> dict[str, object]:
    return {
        "classes": " ".join(f"h-{name}" for name in ("wraps", "cuts", "fills") if getattr(column, name)),
        "name": column.name,
        "label": column.label,
        "field": column.name,
        "align": "right" if column.is_number else "left",
        "sortable": column.sort is not None,
    }
