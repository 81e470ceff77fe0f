// Tables of kernels and operators: grouped, sorted and filtered here, from the rows that the page holds.
"use strict";

const FEW = 15;
const sum = (rows, at) => rows.reduce((total, row) => total + (row[at] ?? 0), 0);
const mean = (rows, at, weight) => {  // of what is known, by weight
  const known = rows.filter(row => (row[at] ?? null) !== null);
  const whole = sum(known, weight);
  return whole ? known.reduce((total, row) => total + row[at] * row[weight], 0) / whole : null;
};
const end = (rows, at, of) => { const known = rows.map(row => row[at]).filter(value => (value ?? null) !== null); return known.length ? of(...known) : null; };
const percent = share => share === null ? null : 100 * share;
const shown = (value, signed) => {
  if (value === null || value === undefined) return "could not tell";
  if (typeof value !== "number") return value;
  const digits = Math.abs(value) >= 1000 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 };
  return value.toLocaleString("en", { ...digits, signDisplay: signed ? "exceptZero" : "auto" }).replace("-", "\u2212");
};
const time = (ms, signed) => {  // in the unit that suits it
  const size = Math.abs(ms), [times, unit] = size >= 999.5 ? [1e-3, "s"] : size >= .1 || !size ? [1, "ms"] : size >= 1e-4 ? [1e3, "\u00b5s"] : [1e6, "ns"];
  return `${shown(ms * times, signed)}\u00a0${unit}`;
};
const TIMED = /(^| )(ms|µs)(?=,|$)/, titled = name => name.replace(TIMED, "$1time");
const of = (name, value, signed) => TIMED.test(name) && typeof value === "number" ? time(value / (name.includes("µs") ? 1e3 : 1), signed) : shown(value, signed);
const USES = { used: "use them", unused: "could use them", unknown: "could not tell", "no use": "no gain from them" };
const use = row => row.family === "collective" ? "communication" : USES[row.verdict] ?? "could not tell";

const KINDS = {
  kernels: {
    title: "Kernels",
    by: { kernel: r => r.name, "full name": r => r.symbol, "launching op": r => r.op ?? "none recorded", module: r => r.module ?? "none recorded", "shapes of the op": r => `${r.op ?? "no op"} ${r.shapes ?? "no shapes"}`,
      "grid and block": r => `${r.grid ?? "?"} blocks of ${r.block ?? "?"} threads`, family: r => r.family ?? "other", "Tensor Cores": r => use(r) },
    weight: "ms_per_step",
    columns: { calls: g => sum(g, "calls_per_step"), ms: g => sum(g, "ms_per_step"), "mean µs": g => 1e3 * sum(g, "ms_per_step") / sum(g, "calls_per_step"),
      "min µs": g => end(g, "min_us", Math.min), "max µs": g => end(g, "max_us", Math.max), "blocks per SM": g => mean(g, "blocks_per_sm", "ms_per_step"),
      "SM efficiency %": g => percent(mean(g, "sm_efficiency", "ms_per_step")), "occupancy %": g => percent(mean(g, "occupancy", "ms_per_step")),
      "TFLOP/s": g => mean(g, "tflops", "ms_per_step"), "possible TFLOP/s": g => { const reached = mean(g, "reached", "ms_per_step"); return reached ? (mean(g, "tflops", "ms_per_step") ?? NaN) / reached || null : null; }, "GB/s": g => mean(g, "gbs", "ms_per_step"),
      "roof %": g => percent(mean(g, "reached", "ms_per_step")),
      "Tensor Cores": g => { const all = new Set(g.map(r => use(r))); return all.size === 1 ? [...all][0] : "partly"; } },
    sets: {
      times: ["calls", "ms", "mean µs", "min µs", "max µs", "Tensor Cores"], filling: ["calls", "ms", "blocks per SM", "SM efficiency %", "occupancy %"],
      rates: ["calls", "ms", "TFLOP/s", "possible TFLOP/s", "GB/s", "roof %"],
    },
    sort: "ms",
  },
  operators: {
    title: "Operators",
    by: { operator: r => r.name, type: r => r.name.replace(/^.*[\/:](?=.)/, ""), "input shapes": r => `${r.name} ${r.shapes ?? "no shapes recorded"}`, "input types": r => `${r.name} ${r.types ?? "no types recorded"}`,
      "call stack": r => `${r.name} ${r.stack ?? "no stack recorded"}` },
    weight: "device_ms_per_step",
    columns: { calls: g => sum(g, "calls_per_step"), "device ms": g => sum(g, "device_ms_per_step"), "host ms": g => sum(g, "ms_per_step"),
      "host ms, with ops inside": g => sum(g, "total_ms_per_step") },
    sort: "device ms",
    hostOnly: { weight: "ms_per_step", sort: "host ms" },  // of a job without a device
  },
  work: {  // of a comparison: what differs between its sides
    title: "Kernels and operators that differ",
    by: { name: r => r.name, "full name": r => r.symbol, "name and size": r => `${r.name} ${r.size ?? ""}`.trim(), "what became of it": r => r.status, kind: r => r.work },
    weight: "moved_ms",
    columns: { became: g => { const all = new Set(g.map(r => r.status)); return all.size === 1 ? [...all][0] : "differs by size"; },
      "base calls": g => sum(g, "base_calls"), "head calls": g => sum(g, "head_calls"),
      "base ms": g => sum(g, "base_ms"), "head ms": g => sum(g, "head_ms"), "change ms": g => sum(g, "change_ms") },
    sort: "share",
    signed: "change ms",
  },
};

const bar = share => {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("aria-hidden", "true");
  for (const [kind, width] of [["track", 1], ["certain", share]]) {
    const rect = document.createElementNS(SVG, "rect");
    rect.setAttribute("class", kind);
    rect.setAttribute("width", `${(100 * width).toFixed(2)}%`);
    rect.setAttribute("height", "100%");
    rect.setAttribute("rx", "3");
    svg.append(rect);
  }
  return svg;
};

const headed = (name, cell) => { cell.dataset.head = name; return cell; };
const CORES = "Tensor Cores";
const without = (fields, name) => Object.fromEntries(Object.entries(fields).filter(([key]) => key !== name));

const drawTable = (place, table, run) => {
  const rows = table.rows.map(row => Object.fromEntries(table.columns.map((name, i) => [name, row[i]])));
  const usual = KINDS[place.dataset.table];
  const kind = sum(rows, usual.weight) > 0 ? { ...usual } : { ...usual, ...usual.hostOnly };
  if (rows.every(row => (row.verdict ?? null) === null)) Object.assign(kind, { by: without(kind.by, CORES), columns: without(kind.columns, CORES) });
  kind.columns = Object.fromEntries(Object.entries(kind.columns).filter(([, value]) => value(rows) !== null));  // without what nothing is known of
  const sets = Object.entries(kind.sets ?? {}).filter(([, names]) => names.slice(2).some(name => kind.columns[name]));
  const all = sum(rows, kind.weight);
  const state = { by: Object.keys(kind.by)[0], set: sets[0]?.[0], sort: kind.sort, down: true, filter: "", whole: false };

  const grouping = make("select", { ariaLabel: `Group ${kind.title.toLowerCase()} by` }, ...Object.keys(kind.by).map(name => make("option", { value: name, textContent: `by ${name}` })));
  const choice = make("select", { ariaLabel: `Columns of ${kind.title.toLowerCase()}` }, ...sets.map(([name]) => make("option", { value: name, textContent: name })));
  const filter = make("input", { type: "search", placeholder: "Filter", ariaLabel: `Filter ${kind.title.toLowerCase()}` });
  const csv = make("button", { type: "button", className: "small", textContent: "CSV" });
  const more = make("button", { type: "button", className: "small" });
  const told = make("span", { role: "status" });
  const head = make("tr"), body = make("tbody");
  csv.setAttribute("aria-label", `${kind.title} as CSV`);

  const grouped = () => {
    const groups = new Map();
    for (const row of rows) {
      const key = kind.by[state.by](row);
      groups.has(key) ? groups.get(key).push(row) : groups.set(key, [row]);
    }
    const made = [...groups].map(([key, members]) => ({
      key, share: all ? sum(members, kind.weight) / all : 0,
      cells: Object.fromEntries(Object.entries(kind.columns).map(([name, value]) => [name, value(members)])),
    }));
    const wanted = state.filter.toLowerCase(), field = g => g[state.sort] ?? g.cells[state.sort];
    const order = (a, b) => typeof field(a) === "number" ? field(a) - field(b) : String(field(a)).localeCompare(String(field(b)), "en");
    return made.filter(g => g.key.toLowerCase().includes(wanted)).sort((a, b) => (state.down ? -order(a, b) : order(a, b)));
  };

  const header = (name, label, number) => {
    const button = make("button", { type: "button", textContent: label + (state.sort === name ? (state.down ? " ↓" : " ↑") : "") });
    button.dataset.sort = name;
    const cell = make("th", { scope: "col", className: number ? "number" : "" }, button);
    if (state.sort === name) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    button.addEventListener("click", () => {
      [state.sort, state.down] = [name, state.sort === name ? !state.down : name !== "key"];
      draw();
      head.querySelector(`[data-sort="${CSS.escape(name)}"]`).focus();
    });
    return cell;
  };

  const draw = () => {
    const columns = Object.keys(kind.columns).filter(name => !state.set || kind.sets[state.set].includes(name));
    const groups = grouped(), visible = state.whole ? groups : groups.slice(0, FEW);
    head.replaceChildren(header("key", state.by, false), ...columns.map(name => header(name, titled(name), true)),
      header("share", "share", false));
    body.replaceChildren(...visible.map(g => make("tr", {}, make("th", { scope: "row", title: g.key }, make("span", { textContent: g.key })),
      ...columns.map(name => headed(titled(name), make("td", { className: "number", textContent: of(name, g.cells[name], name === kind.signed) }))),
      headed("share", make("td", { className: "share" }, make("span", { textContent: `${(100 * g.share).toFixed(1)}\u00a0%` }), bar(g.share))))));
    if (!groups.length) body.append(make("tr", {}, make("td", { colSpan: columns.length + 2, textContent: "Nothing matches the filter." })));
    told.textContent = !groups.length ? `no ${place.dataset.table.slice(0, -1)} matches` : `${visible.length.toLocaleString("en")} of ${groups.length.toLocaleString("en")}`;
    more.hidden = groups.length <= FEW;
    more.textContent = state.whole ? "Show fewer" : "Show all";
  };

  grouping.addEventListener("change", () => { state.by = grouping.value; draw(); });
  choice.addEventListener("change", () => { state.set = choice.value; draw(); });
  filter.addEventListener("input", () => {
    scroll.style.minHeight ||= `${scroll.offsetHeight}px`;  // what stands below must not jump
    state.filter = filter.value;
    draw();
  });
  more.addEventListener("click", () => { state.whole = !state.whole; draw(); });
  csv.addEventListener("click", () => {
    const groups = grouped();
    download(`${run}-${place.dataset.table}${place.dataset.per ? "-per-step" : ""}`, [state.by, ...Object.keys(kind.columns), "share"], groups.map(g => [g.key, ...Object.values(g.cells), g.share]));
  });
  const scroll = make("div", { className: "scroll", tabIndex: 0 }, make("table", {}, make("thead", {}, head), body));
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", document.querySelectorAll(".run").length > 1 ? `${kind.title} of ${run}` : kind.title);
  place.replaceChildren(make("h4", { textContent: kind.title + (place.dataset.per ?? "") }), make("div", { className: "bar" }, make("span", { className: "buttons" }, grouping, ...(sets.length > 1 ? [choice] : []), filter), csv),
    scroll, make("div", { className: "below" }, told, more));
  draw();
};

for (const section of document.querySelectorAll(".tables")) {
  const { tables } = dataOf(section.dataset.run);
  section.hidden = false;
  for (const place of section.querySelectorAll(".table")) {
    const table = tables[place.dataset.table];
    if (table) drawTable(place, table, section.dataset.run); else place.remove();
  }
}
