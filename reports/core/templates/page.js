"use strict";

// A number column carries its value in data-sort; entries without a value stay last either way.
function compare(a, b, column, sign) {
  const [x, y] = [a.cells[column], b.cells[column]];
  if (!x.classList.contains("number")) {
    return sign * x.textContent.localeCompare(y.textContent, "en", { numeric: true });
  }
  const [p, q] = [x.dataset.sort, y.dataset.sort];
  if (p === undefined || q === undefined) return (p === undefined) - (q === undefined);
  return sign * (p - q);
}

function sortBy(heading) {
  const table = heading.closest("table");
  const descending = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => compare(a, b, heading.cellIndex, descending ? -1 : 1));
  table.tBodies[0].append(...rows);
}

function filterRows(box) {
  const words = box.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = [...document.getElementById(box.dataset.table).tBodies[0].rows];
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
  const shown = rows.filter((row) => !row.hidden).length;
  box.querySelector("output").textContent = `${shown} of ${rows.length} rows`;
}

document.documentElement.classList.add("scripted");
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}
for (const box of document.querySelectorAll(".filter")) {
  box.hidden = false;
  box.querySelector("input").addEventListener("input", () => filterRows(box));
  filterRows(box);
}

// A link may lead to a folded section.
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let part = target; part; part = part.parentElement) if (part.localName === "details") part.open = true;
  target?.scrollIntoView();
}
addEventListener("hashchange", openTarget);
openTarget();
