"use strict";
(() => {
  const MOST_ROWS = 200;
  const MOST_WIDE = 10; // regions: where there are more, a cell has its symbol, and the rest as its title
  const SVG = "http://www.w3.org/2000/svg";
  const SYMBOLS = { ok: "✓", behind: "…", silent: "✗", unknown: "?", "rolled-back": "✗", lossy: "✗" };
  const WORDS = { ok: "OK", degraded: "DEGRADED", unknown: "UNKNOWN" };
  const UNSEEN = 20; // seconds without a look, or four looks: what was seen before is not what is
  const rank = (state) => ["ok", "behind", "silent", "unknown", "rolled-back", "lossy"].indexOf(state);
  const at = (id) => document.getElementById(id);
  const drawn = new Map();
  let status = null;
  let failure = null;
  let history = [];
  let isConnected = false;
  let lastEvent = 0;
  let matrix = null;

  // Names come from servers: they are set as text, never as HTML.
  function element(name, { text, svg, ...attributes } = {}, children = []) {
    const made = svg ? document.createElementNS(SVG, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    made.append(...children);
    return made;
  }
  const drawing = (name, attributes, children) => element(name, { svg: true, ...attributes }, children);
  /** A text of vstream, in which what stands between backticks is code. */
  const prose = (text) => text.split("`").map((part, index, parts) =>
    index % 2 === 0 ? part : index === parts.length - 1 ? `\`${part}` : element("code", { text: part }));
  const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString();
  const count = (value) => (value === null ? "?" : value.toLocaleString("en"));
  function duration(seconds) {
    if (seconds < 90) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
    return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
  }

  /** Replace what is in a place, if it differs from what was drawn there. */
  function draw(id, content, make) {
    const key = JSON.stringify(content);
    if (drawn.get(id) === key) return;
    drawn.set(id, key);
    at(id).replaceChildren(...make(content));
  }

  function drawList(id, items, total) {
    at(`${id}-section`).hidden = total === 0;
    draw(id, [items, total], () => {
      const lines = items.map(({ about, text, code }) =>
        element("li", {}, [element("b", { text: `${about}: ` }), ...prose(text), ...(code ? [" · what to do: ", element("code", { text: `vstream lint --explain ${code}` })] : [])]));
      if (total > items.length) lines.push(element("li", {}, prose(`and ${count(total - items.length)} more: \`vstream status\` lists all`)));
      return lines;
    });
  }

  function drawScenario(scenario) {
    at("scenario-section").hidden = scenario === null;
    draw("scenario", scenario, () => {
      if (scenario === null) return [];
      const { name, description, number, total, since, failed } = scenario;
      const step = number ? `step ${number} of ${total}: ` : "";
      const bar = element("progress", { max: Math.max(1, total), value: number, "aria-label": `step ${number} of ${total}` });
      const line = element("p", {}, [element("b", { text: name }), ` ${step}${description}, since ${clock(since)}`]);
      return [line, bar, element("ul", { class: "problems" }, failed.map((text) => element("li", { text })))];
    });
  }

  function drawVerdict() {
    const isLost = !isConnected || failure !== null || !status;
    const verdict = isLost ? "unknown" : status.verdict;
    const problems = status ? status.problem_count : 0;
    const words = isLost ? "what works now is not known" : problems ? `${count(problems)} problem${problems === 1 ? "" : "s"}` : verdict === "unknown" ? "no problem was found, but not everything could be checked" : "all checks passed";
    draw("verdict", [verdict, words], () => [element("span", { class: `badge ${verdict}`, text: WORDS[verdict] }), ` ${words}`]);
    document.title = `${WORDS[verdict]} · ${status ? status.topology : "vstream"}`;
    document.body.classList.toggle("stale", isLost);
    const since = status ? ` What you see is from ${clock(status.at)}.` : "";
    const reason = !isConnected ? "The exporter does not answer." : failure ? `Nothing could be read: ${failure.reason}.` : "";
    at("lost").hidden = !isLost;
    if (at("lost").textContent !== reason + since) at("lost").textContent = reason + since;
  }

  function drawMap({ places, regions, cells, servers }) {
    const isMany = places.length > 8; // then names stand around the circle like spokes
    const [width, height, radius] = isMany ? [640, 560, 11] : [480, 300, 16];
    const points = new Map();
    places.forEach((place, index) => {
      const angle = (index / places.length) * 2 * Math.PI - Math.PI / 2;
      const [wide, high] = isMany ? [170, 170] : [width / 2 - 90, height / 2 - 55];
      points.set(place, [width / 2 + Math.cos(angle) * wide, height / 2 + Math.sin(angle) * high, angle]);
    });
    const worst = new Map();
    for (const cell of cells) {
      if (cell.origin_place === cell.reader_place) continue;
      const key = [cell.origin_place, cell.reader_place].sort().join("\n");
      if (!worst.has(key) || rank(cell.state) > rank(worst.get(key).state)) worst.set(key, cell);
    }
    const shapes = [];
    for (const cell of [...worst.values()].sort((a, b) => rank(a.state) - rank(b.state))) {
      const [[x1, y1], [x2, y2]] = [points.get(cell.origin_place), points.get(cell.reader_place)];
      shapes.push(drawing("line", { x1, y1, x2, y2, class: `stroke-${cell.state}` },
        [drawing("title", { text: `${cell.origin_place} → ${cell.reader_place}: ${cell.state}` })]));
    }
    const byName = new Map(regions.map((region) => [region.name, region]));
    for (const [place, [cx, cy, angle]] of points) {
      const region = byName.get(place);
      // The stretch cluster is a place of its own, of which only the lines say something.
      const state = region ? stateOf(region) : "none";
      shapes.push(drawing("circle", { cx, cy, r: radius, class: `stroke-${state}` }));
      shapes.push(drawing("text", { x: cx, y: cy + 4, "text-anchor": "middle", text: { ok: "✓", bad: "✗", unknown: "?", none: "" }[state] }));
      const servers = region ? `${region.servers_reached} of ${region.servers}` : "";
      if (isMany) {
        const isLeft = Math.cos(angle) < -0.01;
        const transform = `translate(${cx} ${cy}) rotate(${(angle * 180) / Math.PI + (isLeft ? 180 : 0)})`;
        const text = region && region.servers_reached + region.servers_unknown < region.servers ? `${place}, ${servers}` : place;
        shapes.push(drawing("text", { transform, x: isLeft ? -16 : 16, y: 4, "text-anchor": isLeft ? "end" : "start", text }));
        continue;
      }
      const below = cy > height / 2 - 1;
      shapes.push(drawing("text", { x: cx, y: cy + (below ? 32 : -36), "text-anchor": "middle", "font-weight": "bold", text: place }));
      if (region) shapes.push(drawing("text", { x: cx, y: cy + (below ? 46 : -22), "text-anchor": "middle", text: `${servers} servers` }));
    }
    const summary = regions.map((region) => `${region.name}: ${{ ok: "well", bad: "not well", unknown: "not known" }[stateOf(region)]}`).join(", ");
    return [drawing("svg", { viewBox: `0 0 ${width} ${height}`, class: isMany ? "many" : "few", role: "img", "aria-label": summary }, shapes)];
  }

  function stateOf(region) {
    const shares = [region.publish, region.direct_get, region.existing_consumers].map(share);
    if (shares.includes("bad")) return "bad";
    return region.problem || shares.includes("unknown") ? "unknown" : "ok";
  }
  function share({ works, of, unknown }) {
    if (works === of) return "ok";
    return works + unknown === of ? "unknown" : "bad";
  }

  /** The table for these regions, and its cells by pair: they stay, and only what has changed in them is drawn again. */
  function makeMatrix(places) {
    const isCompact = places.length > MOST_WIDE;
    const head = element("thead", {}, [element("tr", {}, [element("th", { text: "from ↓ to →", scope: "col" }), ...places.map((place) => element("th", { text: place, scope: "col" }))])]);
    const cells = new Map();
    const rows = places.map((origin) => element("tr", {}, [element("th", { text: origin, scope: "row" }), ...places.map((reader) => {
      cells.set(`${origin}\n${reader}`, element("td"));
      return cells.get(`${origin}\n${reader}`);
    })]));
    at("matrix").classList.toggle("compact", isCompact);
    at("matrix").replaceChildren(head, element("tbody", {}, rows));
    return { key: places.join("\n"), isCompact, cells };
  }

  function drawMatrix({ places, cells }) {
    if (!matrix || matrix.key !== places.join("\n")) matrix = makeMatrix(places);
    const byPair = new Map(cells.map((cell) => [`${cell.origin_place}\n${cell.reader_place}`, cell]));
    for (const [pair, shown] of matrix.cells) {
      const { state, title, words } = describeCell(byPair.get(pair));
      const text = matrix.isCompact ? words[0] : words;
      if (shown.textContent !== text) shown.textContent = text;
      if (shown.className !== state) shown.className = state;
      if (shown.title !== title) shown.title = title;
    }
  }

  function describeCell(cell) {
    if (!cell) return { state: "soft", title: "", words: "–" };
    const waiting = cell.pending ? ` ${count(cell.pending)}` : "";
    const age = cell.oldest_pending_age_s ? `, ${duration(cell.oldest_pending_age_s)}` : "";
    const left = cell.lossy_in_s === null ? "" : `; the first is lost in ${duration(cell.lossy_in_s)}`;
    const words = `${cell.state}${waiting}${age}`;
    return { state: `state-${cell.state}`, title: `${cell.origin_place} → ${cell.reader_place}: ${cell.stream} ${words}${left}`, words: `${SYMBOLS[cell.state]} ${words}` };
  }

  function drawRegions({ regions }) {
    const columns = ["region", "servers", "publish", "read", "existing consumers", "new consumers and changes"];
    const head = element("thead", {}, [element("tr", {}, columns.map((text) => element("th", { text, scope: "col" })))]);
    const cell = (part) => {
      const state = share(part);
      return element("td", { class: `state-${state}`, text: part.of === 0 ? "–" : `${{ ok: "✓", bad: "✗", unknown: "?" }[state]} ${part.works} of ${part.of}` });
    };
    const control = (works) => {
      const [state, text] = works === null ? ["unknown", "?"] : works ? ["ok", "✓"] : ["bad", "✗"];
      return element("td", { class: `state-${state}`, text });
    };
    const rows = regions.map((region) => element("tr", {}, [
      element("th", { text: region.name, scope: "row" }),
      element("td", { class: `state-${share({ works: region.servers_reached, of: region.servers, unknown: region.servers_unknown })}`, title: region.problem || "", text: `${region.servers_reached} of ${region.servers}` }),
      cell(region.publish), cell(region.direct_get), cell(region.existing_consumers),
      control(region.new_consumers),
    ]));
    return [head, element("tbody", {}, rows)];
  }

  function drawStreams({ streams, filter }) {
    const chosen = streams.filter((stream) => stream.name.includes(filter)).sort((a, b) => rank(b.state) - rank(a.state) || a.name.localeCompare(b.name));
    at("shown").textContent = `${count(Math.min(chosen.length, MOST_ROWS))} of ${count(streams.length)}, the worst first`;
    const columns = ["stream", "state", "to come", "oldest", "worst: from → to", "leaders"];
    const head = element("thead", {}, [element("tr", {}, columns.map((text) => element("th", { text, scope: "col" })))]);
    const rows = chosen.slice(0, MOST_ROWS).map((stream) => element("tr", {}, [
      element("th", { text: stream.name, scope: "row" }),
      element("td", { class: `state-${stream.state}`, text: `${SYMBOLS[stream.state]} ${stream.state}` }),
      element("td", { class: "number", text: count(stream.pending) }),
      element("td", { class: "number", text: stream.age === null ? "" : duration(stream.age) }),
      element("td", { text: stream.state === "ok" ? "" : stream.worst || "" }),
      element("td", { class: "soft", text: stream.leaders.join(", ") + (stream.more_leaders ? `, and ${stream.more_leaders} more` : "") }),
    ]));
    return [head, element("tbody", {}, rows)];
  }

  /** What was seen from when to when. Longer than *gap* seconds after a look, nothing was: the machine slept, or the page had no exporter. */
  function findSpans(samples, until, gap) {
    const spans = [];
    const add = (verdict, from, to) => {
      const last = spans[spans.length - 1];
      if (last && last.verdict === verdict) last.to = to;
      else if (to > from) spans.push({ verdict, from, to });
    };
    samples.forEach(([time, verdict], index) => {
      const end = index + 1 < samples.length ? samples[index + 1][0] : until;
      add(verdict, time, Math.min(end, time + gap));
      if (end > time + gap) add("unknown", time + gap, end);
    });
    return spans;
  }

  function drawHistory({ samples, until, gap }) {
    const spans = findSpans(samples, until, gap);
    if (!spans.length) return [element("p", { class: "soft", text: "One look so far: come back in a minute." })];
    const first = samples[0][0];
    const largest = Math.max(0, ...samples.map(([, , , pending]) => pending || 0));
    const [width, height, top] = [1000, largest ? 90 : 12, 24]; // where nothing was to come, there is no line
    const x = (time) => ((time - first) / (until - first)) * width;
    const shapes = spans.map(({ verdict, from, to }) =>
      drawing("rect", { x: x(from), y: 0, width: Math.max(0.5, x(to) - x(from)), height: 12, class: `fill-${verdict}` }));
    const lines = [[]];
    let before = first;
    for (const [time, , , pending] of samples) {
      if (pending === null || time - before > gap) lines.push([]);
      if (pending !== null) lines[lines.length - 1].push(`${x(time).toFixed(1)},${(height - (pending / Math.max(1, largest)) * (height - top)).toFixed(1)}`);
      before = time;
    }
    if (!largest) lines.length = 0;
    for (const points of lines.filter((each) => each.length > 1)) shapes.push(drawing("polyline", { class: "plot-line", points: points.join(" ") }));
    const spent = (verdict) => spans.reduce((sum, span) => sum + (span.verdict === verdict ? span.to - span.from : 0), 0);
    const [troubled, unknown] = [spent("degraded"), spent("unknown")];
    const isKnown = samples.every(([, , , pending]) => pending !== null);
    const waited = largest ? `, the line the messages to come, at most ${count(largest)}` : isKnown ? "; no messages were to come" : "";
    const label = `From ${clock(first)} to ${clock(until)}: ${troubled ? `problems for ${duration(troubled)}` : "no problem was seen"}${unknown ? `, not known for ${duration(unknown)}` : ""}.`;
    return [
      drawing("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", height, role: "img", "aria-label": label }, shapes),
      element("p", { class: "soft", text: `${label} The bar shows the verdict${waited}.` }),
    ];
  }

  /** Draw a part in a frame of its own: however much has changed, the page answers in between. */
  const waiting = new Map();
  function drawLater(id, drawPart) {
    if (!waiting.size) requestAnimationFrame(drawNext);
    waiting.set(id, drawPart);
  }
  function drawNext() {
    const [[id, drawPart]] = waiting;
    waiting.delete(id);
    drawPart();
    if (waiting.size) requestAnimationFrame(drawNext);
  }

  function drawAll() {
    drawVerdict();
    const until = Math.max(status ? status.at : 0, failure ? failure.at : 0, ...history.slice(-1).map(([time]) => time));
    draw("history", { samples: history, until, gap: status ? Math.max(UNSEEN, 4 * status.every) : UNSEEN }, drawHistory);
    if (!status) return;
    at("topology").textContent = status.topology;
    drawList("problems", status.problems, status.problem_count);
    drawList("unknown", status.unknown, status.unknown_count);
    const faults = status.faults.map((fault) => ({ about: fault.id, text: `${fault.command}, since ${clock(Date.parse(fault.since) / 1000)}; \`vstream chaos heal ${fault.id}\` ends it` }));
    drawList("faults", faults, faults.length);
    drawScenario(status.scenario);
    const { places, regions, cells, streams } = status;
    const states = cells.map(({ origin_place, reader_place, state }) => ({ origin_place, reader_place, state }));
    drawLater("map", () => draw("map", { places, regions, cells: states }, drawMap));
    drawLater("matrix", () => drawMatrix({ places, cells }));
    drawLater("regions", () => draw("regions", { regions }, drawRegions));
    drawLater("streams", () => draw("streams", { streams, filter: at("filter").value.trim() }, drawStreams));
  }

  function showAge() {
    if (!status) return;
    const age = Math.max(0, Date.now() / 1000 - status.at);
    at("looked").textContent = `looked ${duration(age)} ago, every ${duration(status.every)}`;
    // A feed that stopped in silence is as good as none.
    const wasConnected = isConnected;
    if (isConnected && (Date.now() - lastEvent) / 1000 > Math.max(UNSEEN, 4 * status.every)) isConnected = false;
    if (wasConnected !== isConnected) drawAll();
  }

  function remember(verdict, problems, pending, time) {
    const last = history[history.length - 1];
    if (!last || time - last[0] >= 10 || last[1] !== verdict) history = [...history.slice(-2879), [time, verdict, problems, pending]];
  }

  const feed = new EventSource("/events");
  const on = (name, take) => feed.addEventListener(name, (event) => {
    isConnected = true;
    lastEvent = Date.now();
    take(JSON.parse(event.data));
    drawAll();
  });
  on("history", (samples) => { history = samples; });
  on("status", (content) => {
    status = content;
    failure = null;
    const known = content.cells.every((cell) => cell.pending !== null);
    remember(content.verdict, content.problem_count, known ? content.cells.reduce((sum, cell) => sum + cell.pending, 0) : null, content.at);
  });
  on("failure", (content) => {
    failure = content;
    remember("unknown", null, null, content.at);
  });
  feed.addEventListener("error", () => { isConnected = false; drawVerdict(); });
  at("filter").addEventListener("input", drawAll);
  setInterval(showAge, 1000);
})();
