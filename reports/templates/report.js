// Draws the charts of a report. The data stands in the page as JSON; the library is Chart.js 3.
(function () {
  "use strict";
  const specs = JSON.parse(document.getElementById("chart-data").textContent);
  const drawn = [];

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function axis(title, extra) {
    return Object.assign({
      title: { display: title !== "", text: title, color: color("--soft") },
      ticks: { color: color("--soft") },
      grid: { color: color("--rule"), borderColor: color("--rule") }
    }, extra);
  }

  function draw(canvas, spec) {
    const line = spec.kind === "line";
    const stacked = spec.kind === "stacked";
    const tornado = spec.kind === "tornado";
    const datasets = spec.series.map(function (one, i) {
      const ink = color("--s" + (i % 8));
      return {
        label: one.label, data: one.data, yAxisID: one.axis === 1 ? "y1" : "y",
        borderColor: ink, backgroundColor: ink, fill: false, borderWidth: line ? 2 : 0, pointRadius: 3, tension: 0,
        spanGaps: true, borderDash: one.axis === 1 ? [5, 4] : [], maxBarThickness: 46
      };
    });
    const scales = {
      x: axis(spec.x, { stacked: stacked }),
      y: axis(spec.units[0], { stacked: stacked, beginAtZero: true })
    };
    if (spec.units.length > 1) {
      scales.y1 = axis(spec.units[1], { position: "right", beginAtZero: true, grid: { drawOnChartArea: false } });
    }
    if (tornado) {
      // Bars lie: the values run along x, the categories along y, both series of one share a row.
      scales.x = axis("", { ticks: { color: color("--soft"), callback: function (v) { return Math.round(100 * v) + " %"; } } });
      scales.y = axis("", { stacked: true });
      datasets.forEach(function (one) { delete one.yAxisID; });
    }
    return new Chart(canvas, {
      type: line ? "line" : "bar",
      data: { labels: spec.labels, datasets: datasets },
      options: {
        animation: false, responsive: true, maintainAspectRatio: false,
        interaction: { mode: "index", intersect: false },
        scales: scales, indexAxis: tornado ? "y" : "x",
        plugins: {
          legend: { display: datasets.length > 1, position: "bottom", labels: { color: color("--ink"), boxWidth: 12 } }
        }
      }
    });
  }

  function draw_all() {
    while (drawn.length > 0) drawn.pop().destroy();
    specs.forEach(function (spec, i) {
      drawn.push(draw(document.getElementById("chart-" + i), spec));
    });
  }

  draw_all();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw_all);
  window.addEventListener("beforeprint", function () {
    drawn.forEach(function (chart) { chart.resize(); });
    document.querySelectorAll("details").forEach(function (one) { one.open = true; });  // paper has no clicks
  });
})();
