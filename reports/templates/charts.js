// Vega-Lite's charts, each drawn when it comes near the screen, or else when there is nothing better to do; its expressions
// are interpreted, never compiled.
"use strict";

const AXES = 50;  // px

const rowsOf = (spec, data) => data?.values ?? spec.datasets?.[data?.name] ?? [];
// the numbers of a chart are those of its fullest layer; the others hold a part of them, or labels
const numbersOf = spec => [spec, ...(spec.layer ?? [])].map(part => rowsOf(spec, part.data)).sort((a, b) => b.length - a.length)[0];

const begun = new Set();
const drawChart = async plot => {
  if (begun.has(plot)) return;
  begun.add(plot);
  const spec = dataOf(plot.dataset.run).charts[plot.dataset.chart];
  // the figure has a name; the unnamed parts of its drawing are nothing to read out
  const drawing = plot.appendChild(make("div", { ariaHidden: "true" }));
  await window.vegaEmbed(drawing, structuredClone(spec), {
    actions: false, ast: true, defaultStyle: false, renderer: "svg", mode: "vega-lite",
    tooltip: { disableDefaultStyle: true },
  });
  plot.dataset.drawn = "yes";
  plot.style.minHeight = "";
};

const near = new IntersectionObserver(entries => {
  for (const entry of entries.filter(one => one.isIntersecting)) {
    near.unobserve(entry.target);
    drawChart(entry.target);
  }
}, { rootMargin: "600px" });

for (const plot of document.querySelectorAll(".plot")) {
  const figure = plot.closest("figure");
  figure.hidden = false;
  plot.style.minHeight = `${(dataOf(plot.dataset.run).charts[plot.dataset.chart].height ?? 0) + AXES}px`;  // so that nothing jumps
  near.observe(plot);
  figure.querySelector(".csv").addEventListener("click", () => {
    const rows = numbersOf(dataOf(plot.dataset.run).charts[plot.dataset.chart]);
    const columns = Object.keys(rows[0] ?? {}).filter(name => !["order", "place", "across"].includes(name));
    download(`${plot.dataset.run}-${plot.dataset.chart}`, columns, rows.map(row => columns.map(name => row[name])));
  });
}
const plots = [...document.querySelectorAll(".plot")];
const whenIdle = window.requestIdleCallback ?? (then => setTimeout(then, 100));
const drawRest = async () => {
  const next = plots.find(plot => !begun.has(plot));
  if (!next) return;
  await drawChart(next);
  whenIdle(drawRest);
};
addEventListener("load", () => whenIdle(drawRest));
addEventListener("beforeprint", () => plots.forEach(drawChart));
