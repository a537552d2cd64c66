"use strict";
// Sorts tables, filters one, shows one pair of pictures, points out values, saves the data. The page is whole without it.
(function () {
  const by = (id) => document.getElementById(id);

  const tip = by("tip");
  function show(event) {
    const mark = event.target.closest ? event.target.closest("[data-tip]") : null;
    tip.hidden = mark === null;
    if (mark === null) return;
    tip.textContent = mark.getAttribute("data-tip");
    const box = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, window.innerWidth - box.width - 8);
    const above = event.clientY - box.height - 14;
    tip.style.left = Math.max(8, left) + "px";
    tip.style.top = (above > 8 ? above : event.clientY + 18) + "px";
  }
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  const pair = by("pair");
  if (pair !== null) {
    const pick = () => document.querySelectorAll("[data-pair]").forEach((part) => {
      part.hidden = part.getAttribute("data-pair") !== pair.value;
    });
    pair.addEventListener("change", pick);
    pick();
  }

  function sortable(table) {
    const body = table.tBodies[0];
    const heads = Array.from(table.tHead.rows[0].cells);
    const key = (row, column) => row.cells[column].getAttribute("data-order");
    function compare(a, b) {
      if (a === "" || b === "") return (a === "") - (b === "");
      const x = Number(a), y = Number(b);
      return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
    }
    function sort(column) {
      const up = heads[column].getAttribute("aria-sort") !== "ascending";
      heads.forEach((head) => head.removeAttribute("aria-sort"));
      heads[column].setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = Array.from(body.rows);
      rows.sort((r, s) => {
        const a = key(r, column), b = key(s, column);
        const order = compare(a, b);
        return up || a === "" || b === "" ? order : -order;
      });
      body.append(...rows);
    }
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(column));
      head.append(button);
    });
  }
  document.querySelectorAll("table[data-sort]").forEach(sortable);

  const filter = by("filter");
  if (filter !== null) {
    const body = filter.closest("section").querySelector("table[data-sort]").tBodies[0];
    filter.addEventListener("input", () => {
      const wanted = filter.value.trim().toLowerCase();
      let left = 0;
      for (const row of body.rows) {
        row.hidden = !Array.from(row.cells).some((cell) => cell.textContent.toLowerCase().includes(wanted));
        left += row.hidden ? 0 : 1;
      }
      by("matches").textContent = wanted === "" ? "" : left + " of " + body.rows.length;
    });
  }

  function open() {
    const target = /^#[a-z]+-\d+$/.test(location.hash) ? document.querySelector(location.hash) : null;
    if (target === null) return;
    for (let part = target; part !== null; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    target.scrollIntoView();
  }
  window.addEventListener("hashchange", open);
  open();

  const save = by("save");
  save.hidden = false;
  save.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([by("report").textContent], { type: "application/json" }));
    link.download = "report.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });
})();
