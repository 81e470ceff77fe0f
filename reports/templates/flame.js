// A flame graph from the top down: elements, not a canvas, so that each frame can be focused, named and read out.
// Data: { columns, rows } of frames, those around before those inside; columns id, parent, name, kind, total_ms, self_ms and,
// in a comparison, base_ms: then a frame is as wide as it is now and coloured by what it has become.
"use strict";

const NARROWEST = 2.5, FRAME = 22, LETTER = 7.3, EDGES = 13, FEWEST = 5;  // px; a label is shown whole or with so many signs

const framesOf = table => {
  const all = table.rows.map(row => Object.fromEntries(table.columns.map((name, i) => [name, row[i]])));
  const root = { name: "everything", kind: "all", parent: null, depth: 0, inner: [], self_ms: 0 };
  const byId = new Map(all.map(frame => [frame.id, Object.assign(frame, { inner: [] })]));
  for (const frame of all) {
    frame.above = byId.get(frame.parent) ?? root;
    frame.depth = frame.above.depth + 1;
    frame.above.inner.push(frame);
  }
  root.total_ms = root.inner.reduce((sum, frame) => sum + frame.total_ms, 0);
  if (table.columns.includes("base_ms")) root.base_ms = root.inner.reduce((sum, frame) => sum + (frame.base_ms ?? 0), 0);
  return [root, ...all];
};

const drawFlame = (section, table) => {
  const frames = framesOf(table), [root] = frames;
  if (!(root.total_ms > 0)) return;
  section.hidden = false;
  const tree = section.querySelector("[role=tree]"), readout = section.querySelector(".readout");
  const compared = "base_ms" in root;
  const nameOf = frame => frame.name ?? "what launched it was not recorded";
  const told = frame => [
    frame === root ? null : frame.kind, `${length(frame.total_ms * 1e6)}, ${(100 * frame.total_ms / root.total_ms).toFixed(1)} %`,
    frame.inner.length && frame.self_ms > 0 ? `${length(frame.self_ms * 1e6)} of it by itself` : null,
    compared ? `was ${frame.base_ms === null ? "not there" : length(frame.base_ms * 1e6)}` : null,
  ].filter(Boolean).join(", ");
  const change = frame => {
    if (!compared) return "";
    const by = frame.total_ms - (frame.base_ms ?? 0);
    return Math.abs(by) < .01 * root.total_ms ? " same" : by > 0 ? " longer" : " shorter";
  };
  const hottest = Math.max(...frames.map(frame => frame.self_ms ?? 0)) || 1;
  const heat = frame => compared || frame === root ? "" : `${Math.round(100 * Math.sqrt(frame.self_ms / hottest))}%`;
  let zoomed = root, focused = root;

  const isUnder = (frame, of) => { while (frame && frame !== of) frame = frame.above; return frame === of; };
  const place = (frame, left, width) => {
    Object.assign(frame, { left, width });
    let at = left;
    for (const one of frame.inner) {
      const part = frame.total_ms > 0 ? width * one.total_ms / frame.total_ms : 0;
      place(one, at, part);
      at += part;
    }
  };
  const lay = () => {
    const whole = tree.clientWidth || 800;
    place(zoomed, 0, whole);
    for (let up = zoomed.above; up; up = up.above) Object.assign(up, { left: 0, width: whole });
    let deepest = 0;
    for (const frame of frames) {
      const shown = isUnder(zoomed, frame) || (isUnder(frame, zoomed) && frame.width >= NARROWEST);
      frame.element.hidden = !shown;
      if (!shown) continue;
      deepest = Math.max(deepest, frame.depth);
      Object.assign(frame.element.style, { left: `${100 * frame.left / whole}%`, width: `${100 * frame.width / whole}%`, top: `${frame.depth * FRAME}px` });
      const label = frame.element.firstChild;
      label.hidden = frame.width < EDGES + LETTER * Math.min(FEWEST, label.textContent.length);
      frame.element.classList.toggle("around", frame !== zoomed && isUnder(zoomed, frame));
      if (frame.inner.length) frame.element.setAttribute("aria-expanded", frame.inner.some(one => isUnder(zoomed, one) || one.width >= NARROWEST));
    }
    tree.style.height = `${(deepest + 1) * FRAME}px`;
  };

  const tell = frame => readout.replaceChildren(make("b", { textContent: nameOf(frame) }), ` ${told(frame)}`);
  const focus = (frame, take = true) => {
    focused.element.tabIndex = -1;
    focused = frame;
    frame.element.tabIndex = 0;
    if (take) frame.element.focus({ preventScroll: true });
    tell(frame);
  };
  const zoom = frame => { zoomed = frame; lay(); };
  const isShown = frame => frame && !frame.element.hidden;
  const beside = by => {
    const row = (focused.above?.inner ?? []).filter(isShown), to = row[row.indexOf(focused) + by];
    if (to) focus(to);
  };
  const keys = {
    ArrowDown: () => { const to = focused.inner.find(isShown); if (to) focus(to); },
    ArrowUp: () => { if (focused.above) focus(focused.above); },
    ArrowRight: () => beside(1), ArrowLeft: () => beside(-1),
    Enter: () => zoom(focused), " ": () => zoom(focused),
    Escape: () => zoom(root), 0: () => zoom(root), Home: () => focus(root),
  };

  for (const frame of frames) {
    const element = frame.element = make("div", { className: `frame k-${frame.kind}${change(frame)}`, tabIndex: -1 },
      make("span", { textContent: frame === root ? section.dataset.all : nameOf(frame) }));
    element.style.setProperty("--heat", heat(frame));
    element.setAttribute("role", "treeitem");
    element.setAttribute("aria-level", frame.depth + 1);
    element.setAttribute("aria-label", `${nameOf(frame)}: ${told(frame)}`);
    element.addEventListener("click", () => { focus(frame); zoom(frame); });
    element.addEventListener("pointerenter", () => tell(frame));
    tree.append(element);
  }
  tree.addEventListener("keydown", event => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  section.querySelector("[data-do=all]").addEventListener("click", () => { zoom(root); focus(root, false); });
  section.querySelector("[data-do=csv]").addEventListener("click", () => download(`${section.dataset.run}-flame`, table.columns, table.rows));
  new ResizeObserver(lay).observe(tree);
  focus(root, false);
  readout.textContent = "Point at anything to read what it is.";
  lay();
};

for (const section of document.querySelectorAll(".flame")) {
  const { flame } = dataOf(section.dataset.run);
  if (flame) drawFlame(section, flame);
}
