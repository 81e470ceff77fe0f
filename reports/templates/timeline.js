// The longest step on a canvas: ten thousand events are too many for elements. Times in ns from the step's start.
"use strict";

const ROW = 14, LABEL = 18, TICKS = 22, AXIS = 38, PAD = 6, DEEPEST = 10, HARDLY = 0.05, SHORTEST_NS = 200;
const COLOR_OF = {
  kernel: "--part-compute", memcpy: "--part-memcpy", memset: "--part-memset", collective: "--part-collective",
  op: "--op", runtime: "--call", annotation: "--range", module: "--range", step: "--range",
};
const colorOf = (kind, causes) => COLOR_OF[kind] ?? (causes[kind] && `--part-${kind}`);
const TEXT_ON = { "--part-compute": "--on-accent", "--call": "--paper", "--part-memcpy": "--on-accent", "--part-collective": "--on-accent", "--part-input": "--on-gap", "--part-sync": "--on-accent" };

const colors = () => {
  const probe = document.body.appendChild(make("i", { hidden: true })), found = {};
  return name => {
    if (!found[name]) {
      probe.style.color = `var(${name})`;
      found[name] = getComputedStyle(probe).color;
      probe.remove();
      document.body.append(probe);
    }
    return found[name];
  };
};

// The rows from the top: why the device idles, then each track as deep as its ranges nest; of threads that hardly run only the names.
const layOut = line => {
  const { events } = line, depths = line.tracks.map(() => 0), rows = line.tracks.map(() => []), busy = line.tracks.map(() => 0);
  events.track.forEach((track, i) => {
    if (events.depth[i] >= DEEPEST) return;
    depths[track] = Math.max(depths[track], events.depth[i] + 1);
    rows[track].push(i);
    if (!events.depth[i]) busy[track] += events.dur_ns[i];
  });
  const idles = i => line.tracks[i].label.startsWith("thread ") && busy[i] < HARDLY * line.dur;
  const folded = line.tracks.map((_, i) => i).filter(idles);
  let top = AXIS;
  const idle = line.idle.cause.length ? { top: top + LABEL, label: "device idle, by cause" } : null;
  if (idle) top += LABEL + ROW + PAD;
  const tracks = line.tracks.flatMap((track, i) => {
    if (folded.length > 1 && folded.includes(i)) return [];
    const made = { label: track.label, top: top + LABEL, depth: depths[i], events: rows[i] };
    top += LABEL + depths[i] * ROW + PAD;
    return [made];
  });
  if (folded.length > 1) {
    const names = folded.map(i => line.tracks[i].label.slice("thread ".length)).join(", ");
    tracks.push({ label: `${folded.length} threads that run for under 5 % of it: ${names}`, top: top + LABEL, depth: 0, events: [] });
    top += LABEL + PAD;
  }
  return { idle, tracks, height: top };
};

const drawTimeline = section => {
  const line = dataOf(section.dataset.run).timeline;
  if (!line) return;
  section.hidden = false;
  const canvas = section.querySelector("canvas"), readout = section.querySelector(".readout"), select = section.querySelector("select");
  const pen = canvas.getContext("2d"), plan = layOut(line), { events, idle } = line;
  const view = { from: 0, to: line.dur }, held = { spans: [], at: -1, hit: null };
  let width = 0, color = colors(), due = false;

  const x = ns => (ns - view.from) / (view.to - view.from) * width;
  const at = px => view.from + px / width * (view.to - view.from);

  const ticks = () => {
    const rough = (view.to - view.from) / Math.max(2, width / 110), size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(n => n * size).find(n => n >= rough);
    const marks = [];
    for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) marks.push(t);
    return marks;
  };

  const box = (start, dur, top, fill) => {
    const left = Math.max(-2, x(start)), right = Math.min(width + 2, x(start + dur));
    if (right < 0 || left > width) return 0;
    pen.fillStyle = fill;
    pen.fillRect(left, top, Math.max(right - left - (right - left > 3 ? .5 : 0), .7), ROW - 1);
    return right - left;
  };

  const drawTrack = track => {
    const last = new Float64Array(DEEPEST).fill(-1);
    for (const i of track.events) {
      const start = events.start_ns[i], end = start + events.dur_ns[i], depth = events.depth[i];
      if (end < view.from || start > view.to) continue;
      const right = x(end);
      if (right - last[depth] < .5) continue;  // it would fall onto a pixel that is painted already
      last[depth] = right;
      const top = track.top + depth * ROW, name = colorOf(line.texts[events.kind[i]], line.causes) ?? "--op";
      const wide = box(start, events.dur_ns[i], top, color(name));
      if (wide > 40) {
        pen.save();
        pen.beginPath();
        pen.rect(Math.max(0, x(start)), top, Math.min(right, width) - Math.max(0, x(start)) - 3, ROW);
        pen.clip();
        pen.fillStyle = color(TEXT_ON[name] ?? "--ink");
        pen.fillText(line.texts[events.name[i]], Math.max(0, x(start)) + 4, top + ROW / 2);
        pen.restore();
      }
    }
  };

  const drawMarks = () => {
    let labelled = -Infinity;
    for (const [number, [start, dur]] of held.spans.entries()) {
      const left = x(start), right = Math.max(x(start + dur), left + 1.5);
      if (right < 0 || left > width) continue;
      pen.globalAlpha = number === held.at ? .28 : .14;
      pen.fillStyle = color("--mark");
      pen.fillRect(left, AXIS, right - left, plan.height - AXIS);
      pen.globalAlpha = 1;
      pen.fillRect(left, AXIS - 4, right - left, 4);
      const words = String(number + 1), from = Math.max(0, left), to = from + pen.measureText(words).width + 4;
      if (from < labelled || to > width) continue;
      labelled = to;
      pen.textAlign = "left";
      pen.fillText(words, from, AXIS - 12);
    }
    if (held.hit) {
      const [start, dur, top] = held.hit;
      pen.strokeStyle = color("--ink");
      pen.lineWidth = 1.5;
      pen.strokeRect(x(start), top - .5, Math.max(x(start + dur) - x(start), 2), ROW);
    }
  };

  const paint = () => {
    due = false;
    const scale = devicePixelRatio || 1;
    width = canvas.clientWidth;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(plan.height * scale);
    canvas.style.height = `${plan.height}px`;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.textBaseline = "middle";
    pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    for (const mark of ticks()) {
      pen.fillStyle = color("--line");
      pen.fillRect(x(mark), AXIS, 1, plan.height - AXIS);
      pen.fillStyle = color("--quiet");
      pen.textAlign = x(mark) > width - 40 ? "right" : x(mark) < 20 ? "left" : "center";
      pen.fillText(mark ? length(mark) : "0", x(mark) + (x(mark) < 20 ? 4 : x(mark) > width - 40 ? -4 : 0), TICKS / 2);
    }
    pen.textAlign = "left";
    for (const row of [plan.idle, ...plan.tracks].filter(Boolean)) {
      pen.fillStyle = color("--quiet");
      pen.fillText(row.label, 6, row.top - LABEL / 2 + 1);
    }
    if (plan.idle) idle.start_ns.forEach((start, i) => {
      if (start + idle.dur_ns[i] >= view.from && start <= view.to) box(start, idle.dur_ns[i], plan.idle.top, color(`--part-${idle.cause[i]}`));
    });
    plan.tracks.forEach(drawTrack);
    drawMarks();
  };

  const repaint = () => { if (!due) { due = true; requestAnimationFrame(paint); } };

  const show = (from, to) => {
    const size = Math.min(line.dur, Math.max(SHORTEST_NS, to - from));
    view.from = Math.min(Math.max(0, from), line.dur - size);
    view.to = view.from + size;
    canvas.dataset.from = Math.round(view.from);
    canvas.dataset.to = Math.round(view.to);
    repaint();
  };
  const middle = () => {
    const place = held.spans[held.at];
    return place ? place[0] + place[1] / 2 : (view.from + view.to) / 2;
  };
  const zoom = (factor, around = middle()) => show(around - (around - view.from) * factor, around + (view.to - around) * factor);
  const pan = part => show(view.from + part * (view.to - view.from), view.to + part * (view.to - view.from));

  const tell = (head, ...rest) => readout.replaceChildren(make("b", { textContent: head }), ` ${rest.join(", ")}`);
  const tellIdle = i => tell(`Idle: ${line.causes[idle.cause[i]] ?? idle.cause[i]}`, length(idle.dur_ns[i]), `from ${length(idle.start_ns[i])} on`);

  const find = (px, py) => {
    const reach = 2 / width * (view.to - view.from), t = at(px);
    const under = (start, dur) => start - reach <= t && t <= start + dur + reach;
    if (plan.idle && py >= plan.idle.top && py < plan.idle.top + ROW) {
      const i = idle.start_ns.findIndex((start, j) => under(start, idle.dur_ns[j]));
      if (i < 0) return null;
      tellIdle(i);
      return [idle.start_ns[i], idle.dur_ns[i], plan.idle.top];
    }
    for (const track of plan.tracks) {
      const depth = Math.floor((py - track.top) / ROW);
      if (depth < 0 || depth >= track.depth) continue;
      const i = track.events.find(j => events.depth[j] === depth && under(events.start_ns[j], events.dur_ns[j]));
      if (i === undefined) continue;
      tell(line.texts[events.name[i]], line.texts[events.kind[i]], track.label, length(events.dur_ns[i]), `from ${length(events.start_ns[i])} on`);
      return [events.start_ns[i], events.dur_ns[i], track.top + depth * ROW];
    }
    return null;
  };

  const longestIdle = idle.dur_ns.map((dur, i) => i).sort((a, b) => idle.dur_ns[b] - idle.dur_ns[a]).slice(0, 50).sort((a, b) => idle.start_ns[a] - idle.start_ns[b]);
  const step = by => {
    const places = held.spans.length ? held.spans : longestIdle.map(i => [idle.start_ns[i], idle.dur_ns[i]]);
    if (!places.length) return;
    held.at = held.at < 0 && by < 0 ? places.length - 1 : (held.at + by + places.length) % places.length;
    const [start, dur] = places[held.at], size = Math.min(Math.max(dur * 3, line.dur / 50), line.dur);
    show(start + dur / 2 - size / 2, start + dur / 2 + size / 2);
    if (held.spans.length) tell(`Place ${held.at + 1} of ${places.length}`, select.selectedOptions[0].textContent, length(dur), `from ${length(start)} on`);
    else { held.hit = [start, dur, plan.idle.top]; tellIdle(longestIdle[held.at]); }
  };

  const choose = (key, isNear = true) => {
    const found = line.shows.find(one => one.key === key);
    select.value = found ? key : "";
    [held.spans, held.at, held.hit] = [[...found?.spans ?? []].sort((a, b) => a[0] - b[0]), -1, null];
    show(0, line.dur);
    if (found && isNear) step(1);
    else readout.textContent = "Point at anything to read what it is.";
  };

  for (const one of line.shows) select.append(make("option", { value: one.key, textContent: one.title }));
  if (!line.shows.length) select.parentElement.hidden = true;
  select.addEventListener("change", () => choose(select.value));
  const does = { back: () => step(-1), on: () => step(1), in: () => zoom(.5), out: () => zoom(2), all: () => show(0, line.dur) };
  for (const button of section.querySelectorAll("[data-do]")) button.addEventListener("click", does[button.dataset.do]);
  for (const button of document.querySelectorAll(`[data-show][data-run="${section.dataset.run}"]`)) {
    button.hidden = false;
    button.addEventListener("click", () => {
      choose(button.dataset.show);
      section.scrollIntoView({ block: "start" });
      canvas.focus({ preventScroll: true });
    });
  }

  const keys = {
    ArrowLeft: () => pan(-.15), ArrowRight: () => pan(.15), ArrowUp: () => step(-1), ArrowDown: () => step(1),
    "+": () => zoom(.6), "=": () => zoom(.6), "-": () => zoom(1 / .6), 0: () => show(0, line.dur),
    Home: () => pan(-1e9), End: () => pan(1e9),
  };
  canvas.addEventListener("keydown", event => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  canvas.addEventListener("wheel", event => {
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY / 300), at(event.offsetX));
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / width);
    else return;
    event.preventDefault();
  }, { passive: false });

  const fingers = new Map();
  const spread = () => { const [a, b] = [...fingers.values()]; return Math.abs(a - b); };
  canvas.addEventListener("pointerdown", event => {
    fingers.set(event.pointerId, event.offsetX);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", event => {
    const before = fingers.get(event.pointerId);
    if (before === undefined) {
      held.hit = find(event.offsetX, event.offsetY);
      return repaint();
    }
    const apart = fingers.size === 2 ? spread() : 0;
    fingers.set(event.pointerId, event.offsetX);
    if (fingers.size === 2) zoom(apart / Math.max(1, spread()), at(event.offsetX));
    else pan((before - event.offsetX) / width);
  });
  for (const over of ["pointerup", "pointercancel"]) canvas.addEventListener(over, event => fingers.delete(event.pointerId));
  canvas.addEventListener("click", event => { held.hit = find(event.offsetX, event.offsetY); repaint(); });
  canvas.addEventListener("dblclick", event => zoom(.4, at(event.offsetX)));

  const key = section.querySelector(".key");
  const kinds = new Set(events.kind.map(kind => line.texts[kind]));
  const entries = [...kinds].map(kind => [colorOf(kind, line.causes), kind]).filter(([variable]) => variable);
  const causes = [...new Set(idle.cause)].map(cause => [`--part-${cause}`, `idle: ${line.causes[cause] ?? cause}`]);
  const named = new Map();
  for (const [variable, text] of [...causes, ...entries]) named.set(variable, [...(named.get(variable) ?? []), text]);
  key.append(...[...named].map(([variable, texts]) => make("li", {}, swatch(`var(${variable})`), texts.join(", "))));

  themed.add(() => { color = colors(); repaint(); });
  new ResizeObserver(() => { if (canvas.clientWidth !== width) repaint(); }).observe(canvas);
  choose(line.shows[0]?.key, false);
};

document.querySelectorAll(".timeline").forEach(drawTimeline);
