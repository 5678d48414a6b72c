"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const number = (value, digits) => value.toLocaleString("en", { maximumFractionDigits: digits });
  // Shapes are on the page, and get the state of the chosen moment.
  const slider = document.getElementById("moment");
  const button = document.getElementById("play");
  const seriesOf = (unit, title) => new Map((data.charts.find((chart) => chart.unit === unit && chart.title === title) || { series: [] }).series.map((series) => [series.name, series.values]));
  const sums = (values) => { let sum = 0; return values.map((value) => sum += value * data.interval); };
  const regions = [...document.querySelectorAll("#replay .region")].map((shape) => {
    const series = seriesOf("rate", shape.dataset.region);
    return { shape, name: shape.dataset.region, series, acknowledged: sums(series.get("acknowledged") || []) };
  });
  const ways = [...document.querySelectorAll("#replay .way")].map((shape) =>
    ({ shape, lag: seriesOf("messages", `in ${shape.dataset.reader}`).get(`from ${shape.dataset.origin}`) || [] }));

  function stateOf(series, at) {
    const [ok, rejected, silent] = ["acknowledged", "rejected", "no answer"].map((name) => series.get(name)?.[at] || 0);
    if (rejected + silent === 0) return ok ? "ok" : "none";
    return ok ? "partly" : "rejected";
  }

  function showMoment(at) {
    const [from, to] = [data.start + at * data.interval, data.start + (at + 1) * data.interval];
    const open = data.faults.filter((fault) => fault.from < to && fault.to > from);
    const faulted = new Set(open.flatMap((fault) => fault.regions));
    for (const { shape, name, series, acknowledged } of regions) {
      shape.setAttribute("class", `region ${stateOf(series, at)}${faulted.has(name) ? " faulted" : ""}`);
      shape.querySelector(".count").textContent = number(acknowledged[at] || 0, 0);
    }
    for (const { shape, lag } of ways) {
      shape.setAttribute("class", `way ${lag[at] ? "behind" : "even"}`);
      shape.querySelector("text").textContent = lag[at] ? number(lag[at], 0) : "";
    }
    const clock = `${number(from, 1)} s`;
    document.getElementById("clock").textContent = clock;
    slider.setAttribute("aria-valuetext", clock);
    const text = open.length ? open.map((fault) => fault.name).join(", ") : "No fault is active.";
    if (document.getElementById("happening").textContent !== text) document.getElementById("happening").textContent = text;
  }

  let playing = null;
  function stop() {
    clearInterval(playing);
    playing = null;
    button.textContent = "Play";
  }
  button.addEventListener("click", () => {
    if (playing !== null) return stop();
    if (Number(slider.value) >= data.intervals - 1) slider.value = "0";
    button.textContent = "Pause";
    const step = Math.max(1, Math.ceil(data.intervals / 150));
    playing = setInterval(() => {
      slider.value = String(Number(slider.value) + step);
      showMoment(Number(slider.value));
      if (Number(slider.value) >= data.intervals - 1) stop();
    }, 200);
  });
  slider.addEventListener("input", () => showMoment(Number(slider.value)));
  document.getElementById("replay").hidden = !regions.length;
  showMoment(0);
})();
