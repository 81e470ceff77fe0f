// The numbers behind each chart, which the page has drawn already.
"use strict";

for (const plot of document.querySelectorAll(".plot")) {
  const button = plot.closest("figure").querySelector(".csv");
  button.hidden = false;
  button.addEventListener("click", () => {
    const { columns, rows } = dataOf(plot.dataset.run).charts[plot.dataset.chart];
    download(`${plot.dataset.run}-${plot.dataset.chart}`, columns, rows);
  });
}
