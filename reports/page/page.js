// Draws the charts of the page from its data block with Chart.js, in the colours of the style sheet.
(() => {
  'use strict';

  const root = document.documentElement;
  const described = JSON.parse(document.getElementById('charts').textContent);
  const dashes = [[], [7, 4], [2, 3], [10, 3, 2, 3], [14, 5], [4, 2, 1, 2]];
  const markers = ['circle', 'rect', 'triangle', 'rectRot', 'star', 'crossRot', 'cross', 'rectRounded'];
  const seriesColours = 8;

  const colour = (name) => getComputedStyle(root).getPropertyValue('--' + name).trim();
  const seriesColour = (index) => colour('series-' + (index % seriesColours + 1));
  const withAlpha = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, '0');

  const formats = {
    plain: new Intl.NumberFormat('en-US', { maximumSignificantDigits: 4 }),
    whole: new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 }),
    exact: new Intl.NumberFormat('en-US', { maximumSignificantDigits: 15 }),
    percent: new Intl.NumberFormat('en-US', { style: 'percent', maximumFractionDigits: 1 }),
    signed_percent: new Intl.NumberFormat('en-US',
      { style: 'percent', maximumFractionDigits: 1, signDisplay: 'exceptZero' }),
  };
  const compact = new Intl.NumberFormat('en-US', { notation: 'compact', maximumSignificantDigits: 3 });
  const titleOf = (measure) => measure.unit ? measure.name + ' (' + measure.unit + ')' : measure.name;
  const withUnit = (value, measure) => formats[measure.style].format(value) + (measure.unit ? ' ' + measure.unit : '');
  const tickText = (value, measure) =>
    (Math.abs(value) >= 10000 ? compact : formats[measure.style]).format(value);

  // With as many decimals as tell neighbours apart.
  function linearTick(value, measure, ticks) {
    if (Math.abs(value) >= 10000 || measure.style === 'whole' || ticks.length < 2) return tickText(value, measure);
    const isShare = measure.style.endsWith('percent');
    const spacing = Math.abs(ticks[1].value - ticks[0].value) * (isShare ? 100 : 1);
    const decimals = Math.min(10, Math.max(0, -Math.floor(Math.log10(spacing) + 1e-9)));
    return new Intl.NumberFormat('en-US', {
      minimumFractionDigits: decimals, maximumFractionDigits: decimals, style: isShare ? 'percent' : 'decimal',
      signDisplay: measure.style === 'signed_percent' ? 'exceptZero' : 'auto',
    }).format(value);
  }

  const isFloating = (chart) => chart.kind === 'floating_bars';
  const isBars = (chart) => chart.kind === 'bars' || chart.kind === 'stacked_bars' || isFloating(chart);
  const isNarrow = () => window.innerWidth < 600;

  // Bars beyond the number of colours have stripes of theirs, so that none looks like another.
  function fillOf(index) {
    const plain = seriesColour(index);
    if (index < seriesColours) return plain;
    const tile = document.createElement('canvas');
    tile.width = tile.height = 8;
    const pen = tile.getContext('2d');
    pen.fillStyle = withAlpha(plain, 0.35);
    pen.fillRect(0, 0, 8, 8);
    pen.strokeStyle = plain;
    pen.lineWidth = 2;
    for (const offset of [-8, 0, 8]) {
      pen.beginPath();
      pen.moveTo(offset, 8);
      pen.lineTo(offset + 8, 0);
      pen.stroke();
    }
    return pen.createPattern(tile, 'repeat');
  }

  // Values of all categories, in their order.
  function inCategories(chart, series, valueOf) {
    const values = new Array(chart.x.categories.length).fill(null);
    for (const point of series.points) values[point.x] = valueOf(point);
    return values;
  }

  function lineDatasets(chart, series, index) {
    const main = {
      label: series.name,
      role: series.role,
      data: chart.x.scale === 'categories'
        ? inCategories(chart, series, (point) => point.y ?? null)
        : series.points.map((point) => ({ x: point.x, y: point.y ?? null })),
      type: 'line',
      borderColor: seriesColour(index),
      backgroundColor: seriesColour(index),
      borderDash: dashes[index % dashes.length],
      borderWidth: 2.25,
      pointStyle: markers[index % markers.length],
      pointRadius: 4,
      pointHoverRadius: 6,
      pointBorderWidth: 2,
      clip: 10,
      order: 1,
    };
    if (series.role === 'ideal' || series.role === 'limit') {
      Object.assign(main, {
        borderColor: colour('reference'),
        backgroundColor: colour('reference'),
        borderDash: series.role === 'ideal' ? [6, 5] : [2, 3],
        borderWidth: 1.75,
        pointRadius: 0,
        pointHoverRadius: 4,
        pointStyle: 'line',
        order: 2,
      });
    }
    const ends = ['low', 'high'];
    if (!series.points.some((point) => point.low !== undefined)) return [main];
    const band = ends.map((end) => ({
      label: series.name + ', ' + end,
      role: end,
      data: chart.x.scale === 'categories'
        ? inCategories(chart, series, (point) => point[end] ?? null)
        : series.points.map((point) => ({ x: point.x, y: point[end] ?? null })),
      type: 'line',
      borderWidth: 0,
      pointRadius: 0,
      pointHoverRadius: 0,
      backgroundColor: withAlpha(seriesColour(index), chart.series.length > 2 ? 0.1 : 0.16),
      fill: end === 'high' ? '-1' : false,
      order: 3,
    }));
    return [...band, main];
  }

  function scatterDataset(series, index) {
    if (series.role === 'ideal') {
      return {
        label: series.name, role: series.role, type: 'line', data: series.points.map(({ x, y }) => ({ x, y })),
        borderColor: colour('reference'), backgroundColor: colour('reference'), borderDash: [6, 5], borderWidth: 1.75,
        pointRadius: 0, pointStyle: 'line', order: 2,
      };
    }
    const many = series.points.length > 60;
    const ink = series.role === 'secondary' ? colour('reference') : seriesColour(index);
    return {
      label: series.name, role: series.role, type: 'scatter', data: series.points.map(({ x, y }) => ({ x, y })),
      labels: series.points.map((point) => point.label ?? ''),
      borderColor: ink, backgroundColor: withAlpha(ink, many ? 0.3 : 0.55), borderWidth: many ? 1 : 1.5,
      pointStyle: markers[index % markers.length], pointRadius: many ? 3.5 : 5.5, pointHoverRadius: 7, order: 1,
    };
  }

  function barDataset(chart, series, index) {
    if (series.role === 'limit') return lineDatasets(chart, series, index)[0];
    const named = { total: 'total', increase: 'increase', decrease: 'decrease' }[series.role];
    const fill = named ? colour(named) : fillOf(index);
    const stacked = chart.kind === 'stacked_bars';
    return {
      label: series.name, role: series.role,
      data: inCategories(chart, series, (point) => isFloating(chart) ? [point.low, point.high] : point.y ?? null),
      changes: isFloating(chart) ? inCategories(chart, series, (point) => point.y ?? null) : undefined,
      backgroundColor: fill,
      borderColor: colour('surface'),
      borderWidth: stacked ? { top: 1, right: 0, bottom: 0, left: 0 } : 0,
      borderRadius: stacked || isFloating(chart) ? 0 : 3,
      grouped: !isFloating(chart),
      maxBarThickness: isFloating(chart) ? 22 : 64,
      categoryPercentage: 0.72,
      barPercentage: 0.9,
      order: 2,
    };
  }

  function datasetsOf(chart) {
    return chart.series.flatMap((series, index) => {
      if (chart.kind === 'line') return lineDatasets(chart, series, index);
      if (chart.kind === 'scatter') return [scatterDataset(series, index)];
      return [barDataset(chart, series, index)];
    });
  }

  // The places that have points, so that an axis of 8, 16, 32 … says just these.
  function placesOf(chart) {
    const places = new Set(chart.series.flatMap((series) => series.points.map((point) => point.x)));
    return [...places].sort((a, b) => a - b);
  }

  function valuesOf(chart, name) {
    const keys = name === 'x' ? ['x'] : ['y', 'low', 'high'];
    return chart.series.flatMap((series) => series.points.flatMap((point) =>
      keys.map((key) => point[key]).filter((value) => value !== undefined)));
  }

  // Powers of ten; where there are few of them, with their multiples by 2 and 5, or by all digits.
  function logarithmicTicks(low, high) {
    const decades = Math.log10(high / low);
    const digits = decades > 2.5 ? [1] : decades > 0.8 ? [1, 2, 5] : [1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9];
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power) {
      for (const digit of digits) {
        const value = Number((digit * 10 ** power).toPrecision(3));
        if (value >= low && value <= high) ticks.push(value);
      }
    }
    return ticks;
  }

  function scaleOf(chart, name) {
    const axis = chart[name];
    const crosswise = isFloating(chart);
    const scale = {
      type: axis.scale === 'categories' ? 'category' : axis.scale,
      stacked: chart.kind === 'stacked_bars',
      beginAtZero: axis.from_zero,
      title: {
        display: !(crosswise && name === 'x'), text: titleOf(axis.measure), color: colour('muted'),
        font: { size: 12.5 }, padding: 6,
      },
      grid: { color: colour('grid'), drawBorder: false, display: name === 'y' || chart.kind === 'scatter' },
      ticks: {
        color: colour('muted'), font: { size: isNarrow() ? 11 : 12.5 }, padding: 6, maxRotation: 90,
        autoSkip: axis.scale !== 'categories' || axis.categories.length > 40, autoSkipPadding: 10,
      },
    };
    if (chart.kind === 'stacked_bars' && axis.measure.style === 'percent') scale.max = 1;
    if (axis.scale === 'logarithmic') {
      const ends = valuesOf(chart, name);
      scale.min = Math.min(...ends) / 1.12;
      scale.max = Math.max(...ends) * 1.12;
      const ticks = logarithmicTicks(scale.min, scale.max).map((value) => ({ value }));
      scale.afterBuildTicks = (built) => { built.ticks = ticks; };
      scale.ticks.callback = (value) => tickText(value, axis.measure);
      scale.ticks.maxRotation = 0;
    } else if (axis.scale === 'linear') {
      scale.ticks.callback = (value, index, ticks) => linearTick(value, axis.measure, ticks);
      scale.grace = axis.from_zero || crosswise ? 0 : '6%';
    } else {
      scale.ticks.callback = function (value) {
        const text = this.getLabelForValue(value);
        const most = isNarrow() ? 18 : 34;
        if (text.length <= most) return text;
        // The last keys of a path say more than the first.
        return crosswise ? '…' + text.slice(1 - most) : text.slice(0, most - 1) + '…';
      };
    }
    if (name === 'x' && chart.kind === 'line' && axis.scale !== 'categories') {
      const places = placesOf(chart);
      scale.afterBuildTicks = (built) => { built.ticks = places.map((value) => ({ value })); };
      scale.min = places[0];
      scale.max = places[places.length - 1];
      scale.offset = false;
      scale.ticks.callback = (value) => tickText(value, axis.measure);
    }
    return scale;
  }

  function tooltipLabel(chart, context) {
    const measure = chart.y.measure;
    const name = context.dataset.label;
    if (chart.kind === 'scatter') {
      const { x, y } = context.raw;
      const point = context.dataset.labels?.[context.dataIndex] ?? name;
      return [point, chart.x.measure.name + ' ' + withUnit(x, chart.x.measure),
        measure.name + ' ' + withUnit(y, measure)];
    }
    if (isFloating(chart)) {
      const change = context.dataset.changes[context.dataIndex];
      const sign = change > 0 && context.dataset.role !== 'total' && measure.style !== 'signed_percent' ? '+' : '';
      return name + ' ' + sign + withUnit(change, measure);
    }
    const value = context.parsed.y;
    const index = context.chart.data.datasets.indexOf(context.dataset);
    const [low, high] = ['low', 'high'].map((role, place) => {
      const beside = context.chart.data.datasets[index - 2 + place];
      if (!beside || beside.role !== role || context.dataset.role !== 'value') return undefined;
      const raw = beside.data[context.dataIndex];
      return typeof raw === 'object' && raw !== null ? raw.y : raw;
    });
    const interval = low === undefined || low === null ? ''
      : ' (' + withUnit(low, measure) + ' to ' + withUnit(high, measure) + (chart.band ? ', ' + chart.band : '') + ')';
    return name + ': ' + withUnit(value, measure) + interval;
  }

  function configurationOf(chart) {
    const isBand = (dataset) => dataset.role === 'low' || dataset.role === 'high';
    const scales = { x: scaleOf(chart, 'x'), y: scaleOf(chart, 'y') };
    return {
      type: chart.kind === 'line' ? 'line' : chart.kind === 'scatter' ? 'scatter' : 'bar',
      data: { labels: chart.x.scale === 'categories' ? chart.x.categories : undefined, datasets: datasetsOf(chart) },
      options: {
        animation: false,
        responsive: true,
        maintainAspectRatio: false,
        indexAxis: isFloating(chart) ? 'y' : 'x',
        // Categories of floating bars run downwards.
        scales: isFloating(chart) ? { y: scales.x, x: scales.y } : scales,
        interaction: chart.kind === 'scatter' ? { mode: 'nearest', intersect: true }
          : { mode: 'index', intersect: false, axis: isFloating(chart) ? 'y' : 'x' },
        plugins: {
          legend: {
            display: chart.series.length > 1,
            position: 'bottom',
            align: 'start',
            labels: {
              color: colour('ink'), usePointStyle: true, padding: 14, font: { size: 13 },
              boxHeight: 7,
              filter: (item, data) => !isBand(data.datasets[item.datasetIndex]),
            },
          },
          tooltip: {
            filter: (item) => !isBand(item.dataset) && item.raw !== null,
            callbacks: {
              title: (items) => {
                if (chart.kind === 'scatter' || items.length === 0) return '';
                if (chart.x.scale === 'categories') return chart.x.categories[items[0].dataIndex];
                return withUnit(items[0].raw.x, chart.x.measure) + ' ' + (chart.x.measure.unit ? '' : chart.x.measure.name);
              },
              label: (context) => tooltipLabel(chart, context),
            },
          },
        },
      },
    };
  }

  function heightOf(chart) {
    const entries = chart.series.length > 1 ? chart.series.length : 0;
    const legend = isNarrow() ? 24 * Math.ceil(entries / 1.6) : 24 * Math.ceil(entries / 4);
    if (isFloating(chart)) return 70 + legend + 30 * chart.x.categories.length;
    return (chart.kind === 'scatter' ? 400 : 300) + legend;
  }

  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  let drawn = [];
  function draw() {
    for (const chart of drawn) chart.destroy();
    drawn = described.map((chart) => {
      const canvas = document.getElementById(chart.id);
      canvas.parentElement.style.height = heightOf(chart) + 'px';
      return new Chart(canvas, configurationOf(chart));
    });
  }

  const unfolded = [];
  window.addEventListener('beforeprint', () => {
    root.classList.add('printing');
    for (const details of document.querySelectorAll('details:not([open])')) {
      details.open = true;
      unfolded.push(details);
    }
    draw();
    drawn.forEach((chart, index) => chart.resize(640, heightOf(described[index])));
  });
  window.addEventListener('afterprint', () => {
    root.classList.remove('printing');
    for (const details of unfolded.splice(0)) details.open = false;
    draw();
  });
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
  let wasNarrow = isNarrow();
  window.addEventListener('resize', () => {
    if (isNarrow() !== wasNarrow) draw();
    wasNarrow = isNarrow();
  });
  draw();
})();
