// Without scripts the page lacks its charts, tables, timeline and buttons, and folded parts stay folded on paper.
"use strict";

const data = new Map();
const dataOf = run => {
  if (!data.has(run)) data.set(run, JSON.parse(document.getElementById(`${run}-data`).textContent));
  return data.get(run);
};

const make = (tag, fields = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), fields);
  element.append(...children);
  return element;
};

const length = ns => {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (Math.abs(ns) >= size) return `${Number((ns / size).toPrecision(3)).toLocaleString("en")} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
};

const SVG = "http://www.w3.org/2000/svg";
const swatch = color => {
  const svg = document.createElementNS(SVG, "svg"), rect = document.createElementNS(SVG, "rect");
  svg.setAttribute("class", "swatch");
  svg.setAttribute("viewBox", "0 0 10 10");
  svg.setAttribute("aria-hidden", "true");
  for (const [name, value] of Object.entries({ width: 10, height: 10, rx: 2, fill: color })) rect.setAttribute(name, value);
  svg.append(rect);
  return svg;
};

// A cell that begins like a formula would be run as one by a spreadsheet: an apostrophe in front keeps it text.
const cellOf = value => {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

const download = (name, columns, rows) => {
  const lines = [columns, ...rows].map(row => row.map(cellOf).join(","));
  const link = make("a", { download: `${name}.csv`, href: URL.createObjectURL(new Blob([`${lines.join("\r\n")}\r\n`], { type: "text/csv" })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};

for (const button of document.querySelectorAll("button.copy")) {
  const code = button.parentElement.querySelector("code");
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

const themes = ["", "light", "dark"], themeButton = document.getElementById("theme");
const themed = new Set();
const tellTheme = () => { for (const redraw of themed) redraw(); };
if (themeButton) themeButton.hidden = false;
themeButton?.addEventListener("click", () => {
  const root = document.documentElement, now = root.dataset.theme ?? "";
  const next = themes[(themes.indexOf(now) + 1) % themes.length];
  if (next) root.dataset.theme = next; else delete root.dataset.theme;
  themeButton.textContent = `Theme: ${next || "same as the system"}`;
  tellTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tellTheme);
matchMedia("print").addEventListener("change", tellTheme);
