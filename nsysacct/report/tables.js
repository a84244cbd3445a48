"use strict";
// Tables sort by a click on a heading (or Enter on it) and filter by the text above them.

(() => {
  const number = (text) => (text === "" ? NaN : Number(text));

  function compare(a, b, numeric) {
    if (!numeric) return a.localeCompare(b, "en", { numeric: true });
    const x = number(a), y = number(b);
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    return x - y;
  }

  function sortable(table) {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const name = head.textContent.trim();
      if (!name) return;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      head.replaceChildren(button);
      const numeric = head.classList.contains("n");
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const up = now ? now === "descending" : !numeric;  // numbers: largest first
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const text = (row) => row.cells[column].textContent.trim();
        const rows = [...body.rows].map((row, place) => ({ row, place, text: text(row) }));
        const empty = (r) => numeric && Number.isNaN(number(r.text));
        rows.sort((a, b) =>
          empty(a) - empty(b) || (up ? 1 : -1) * compare(a.text, b.text, numeric)
          || a.place - b.place);
        body.append(...rows.map((r) => r.row));
      });
    });
  }

  function filterable(table) {
    if (table.tBodies[0].rows.length < 10) return;
    const box = table.parentElement.querySelector("template.filter").content.cloneNode(true);
    const input = box.querySelector("input"), count = box.querySelector("output");
    table.parentElement.before(box);
    const rows = [...table.tBodies[0].rows];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let left = 0;
      rows.forEach((row, i) => {
        row.hidden = !words.every((word) => texts[i].includes(word));
        left += !row.hidden;
      });
      count.value = words.length ? `${left} of ${rows.length} rows` : "";
    });
  }

  for (const table of document.querySelectorAll("table.data")) {
    sortable(table);
    filterable(table);
  }
  // a printed page must not lose what was folded away
  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details")) part.open = true;
  });
})();
