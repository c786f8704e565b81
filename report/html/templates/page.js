"use strict";
// Sorts, filters and shows what the page already says. Without this script everything is there, in the order of rank.

const NEXT = { none: "first", first: "second", second: "none" };

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const original = [...body.rows];
  heads.forEach((head, column) => {
    if (head.classList.contains("text")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    head.dataset.turn = "none";
    button.addEventListener("click", () => {
      const turn = NEXT[head.dataset.turn];
      for (const other of heads) {
        if (!other.hasAttribute("aria-sort")) continue;
        other.setAttribute("aria-sort", "none");
        other.dataset.turn = "none";
      }
      head.dataset.turn = turn;
      const falling = (turn === "first") === head.hasAttribute("data-falling");
      if (turn !== "none") head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      body.append(...(turn === "none" ? original : sorted(original, column, falling)));
    });
  });
}

// Rows by the values of a column. Rows without one come last either way, and equal rows keep their order.
function sorted(rows, column, falling) {
  const keyed = rows.map((row) => ({ row, value: row.cells[column].dataset.value }));
  const sign = falling ? -1 : 1;
  return keyed
    .sort((a, b) => {
      if (a.value === undefined || b.value === undefined) return (a.value === undefined) - (b.value === undefined);
      const gap = Number(a.value) - Number(b.value);
      return sign * (Number.isNaN(gap) ? a.value.localeCompare(b.value, "en", { numeric: true }) : gap);
    })
    .map(({ row }) => row);
}

// One bar of filters steers all that carries data-entrant in its section, by what the section says of each entrant.
// Several words: any of them may match.
function filterable(section) {
  const bar = section.querySelector(".tools:not(.views)");
  const fields = [...bar.querySelectorAll("[data-filter]")];
  const lines = [...section.querySelectorAll("[data-entrant]:not([data-entrant=''])")];
  const clear = bar.querySelector(".clear");
  const traits = JSON.parse(section.dataset.traits);
  const all = new Set(lines.map((line) => line.dataset.entrant)).size;
  const apply = () => {
    const wanted = fields.filter((field) => field.value.trim());
    const shown = new Set();
    for (const line of lines) {
      const fits = wanted.every((field) => {
        const entrant = line.dataset.entrant;
        if (field.tagName === "SELECT") return traits[entrant][field.dataset.filter].includes(field.value);
        return field.value.toLowerCase().trim().split(/[\s,]+/).some((word) => entrant.toLowerCase().includes(word));
      });
      line.hidden = !fits;
      if (fits) shown.add(line.dataset.entrant);
    }
    clear.hidden = !wanted.length;
    bar.querySelector(".count").textContent =
      shown.size === all ? `${all} methods` : `${shown.size || "none"} of ${all} methods`;
  };
  for (const field of fields) for (const event of ["input", "change"]) field.addEventListener(event, apply);
  clear.addEventListener("click", () => {
    for (const field of fields) field.value = "";
    apply();
    fields[0].focus();
  });
  bar.hidden = false;
  apply();
}

// A menu that shows one of the board's views and hides the others.
function switchable(bar) {
  const menu = bar.querySelector("[data-views]");
  const apply = () => {
    for (const option of menu.options) document.getElementById(option.value).hidden = option.value !== menu.value;
  };
  menu.addEventListener("change", apply);
  bar.hidden = false;
  apply();
}

// A menu that shows those columns of a table that are in one group, and such as are in none.
function choosable(menu) {
  const table = document.getElementById(menu.dataset.groups);
  const groups = [...table.tHead.rows[0].cells].map((head) => head.dataset.groups?.split("|"));
  menu.addEventListener("change", () => {
    for (const row of table.rows) {
      groups.forEach((own, column) => {
        row.cells[column].hidden = Boolean(own && menu.value && !own.includes(menu.value));
      });
    }
  });
}

// A link to a part that is folded opens it, also where a filter had hidden it.
function reveal() {
  const target = document.getElementById(location.hash.slice(1));
  if (!target || target.tagName !== "DETAILS") return;
  target.open = true;
  target.hidden = false;
  target.scrollIntoView();
}

document.querySelectorAll("table.sheet").forEach(sortable);
document.querySelectorAll(".tools.views").forEach(switchable);
document.querySelectorAll("select[data-groups]").forEach(choosable);
document.querySelectorAll("section").forEach((section) => section.querySelector(".tools") && filterable(section));
addEventListener("hashchange", reveal);
reveal();
