// report_page.mjs CHROMIUM PAGE: the page draws what the results beside it say, loads nothing, fits narrow and wide
// screens, light and dark, and prints.
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Chromium } from './chromium.mjs';

const [binary, path] = process.argv.slice(2);
const result = (name) => JSON.parse(readFileSync(join(dirname(path), name + '.json'), 'utf8'));
const failures = [];
let checks = 0;
function check(holds, what) {
  ++checks;
  if (!holds) failures.push(what);
}
function checkValues(found, expected, what) {
  check(found && found.length === expected.length && expected.every((value, i) =>
    value === null || value === undefined ? found[i] === null || found[i] === undefined
      : Math.abs(found[i] - value) <= 1e-9 * Math.max(1, Math.abs(value))),
  `${what}: drawn ${JSON.stringify(found)}, in the result ${JSON.stringify(expected)}`);
}

// Of all charts, what Chart.js has, and how much of its canvas is painted.
const drawn = `[...document.querySelectorAll('section')].flatMap((section) =>
  [...section.querySelectorAll('canvas')].map((canvas) => {
    const chart = Chart.getChart(canvas);
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    const colours = new Set();
    let painted = 0;
    for (let i = 0; i < pixels.length; i += 4) {
      if (pixels[i + 3] === 0) continue;
      ++painted;
      if (pixels[i + 3] > 200) colours.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
    }
    return {
      section: section.querySelector('h2').textContent,
      title: canvas.closest('figure').querySelector('h3').textContent,
      labels: chart.data.labels,
      series: chart.data.datasets.map(({label, role, data, changes}) => ({label, role, data: [...data], changes})),
      rows: canvas.closest('figure').querySelectorAll('tbody tr').length,
      painted, colours: colours.size,
      width: canvas.getBoundingClientRect().width, height: canvas.getBoundingClientRect().height,
    };
  }))`;

let charts = [];
function seriesOf(section, title, role = 'value', place = 0) {
  const chart = charts.find((one) => one.section.includes(section) && one.title === title);
  return chart?.series.filter((one) => one.role === role)[place];
}
const ys = (series) => series?.data.map((point) => point !== null && typeof point === 'object' ? point.y : point);
const xs = (series) => series?.data.map((point) => point.x);

function checkScaling(name) {
  const curve = result(name);
  const section = `Scaling of ${curve.model} on ${curve.cluster}`;
  const points = curve.points.filter((point) => !point.reason);
  const throughput = seriesOf(section, 'Throughput');
  checkValues(xs(throughput), points.map((point) => point.devices), section + ', devices');
  checkValues(ys(throughput), points.map((point) => point.tokens_per_s), section + ', throughput');
  for (const [role, end] of [['low', 'step_time_high_s'], ['high', 'step_time_low_s']]) {
    checkValues(ys(seriesOf(section, 'Throughput', role)),
      points.map((point) => point.tokens_per_s * point.step_time_s / point[end]), `${section}, throughput, ${role}`);
    checkValues(ys(seriesOf(section, 'Scaling efficiency', role)),
      points.map((point) => point.efficiency * point.step_time_s / point[end]), `${section}, efficiency, ${role}`);
  }
  checkValues(ys(seriesOf(section, 'Throughput', 'ideal')),
    points.map((point) => points[0].tokens_per_s / points[0].devices_used * point.devices), section + ', ideal');
  checkValues(ys(seriesOf(section, 'Scaling efficiency')), points.map((point) => point.efficiency), section);
  checkValues(ys(seriesOf(section, 'Peak memory')), points.map((point) => point.peak_memory_gib), section + ', memory');
  checkValues(ys(seriesOf(section, 'Cost of a billion tokens')),
    points.map((point) => point.usd_per_billion_tokens), section + ', cost');
  for (const [title, factor] of [['Time of a step', (point) => point.step_time_s], ['Shares of a step', () => 1]]) {
    const chart = charts.find((one) => one.section.includes(section) && one.title === title);
    check(chart.series.length === new Set(points.flatMap((point) => point.shares.map((one) => one.limit))).size,
      `${section}, ${title}: one series for each kind of work`);
    for (const series of chart.series) {
      checkValues(series.data, points.map((point) => {
        const share = point.shares.find((one) => one.limit.replaceAll('_', ' ') === series.label);
        return share ? share.share * factor(point) : null;
      }), `${section}, ${title}, ${series.label}`);
    }
  }
}

function checkCapacity() {
  const { answers, goal } = result('capacity');
  answers.forEach((answer, i) => {
    const found = answer.explored.filter((size) => !size.reason);
    const sizes = [...new Set(found.map((size) => size.devices))].map((devices) =>
      found.filter((size) => size.devices === devices).reduce((a, b) => b.days_p50 < a.days_p50 ? b : a));
    for (const [role, key] of [['low', 'days_p10'], ['value', 'days_p50'], ['high', 'days_p90']]) {
      checkValues(ys(seriesOf('Capacity', 'Days until the job is done', role, i)), sizes.map((size) => size[key]),
        `capacity, ${answer.cluster}, ${key}`);
    }
    checkValues(ys(seriesOf('Capacity', 'Cost of the job', 'value', i)), sizes.map((size) => size.usd),
      `capacity, ${answer.cluster}, cost`);
  });
  check(ys(seriesOf('Capacity', 'Days until the job is done', 'limit')).every((days) => days === goal.days),
    'capacity: the deadline');
}

function checkSweeps() {
  const numbers = result('whatif-numbers'), names = result('whatif-names');
  for (const [place, size] of ['1', '2'].entries()) {
    const points = numbers.points.filter((point) => point.values[1] === size);
    const speed = seriesOf('bandwidth', 'Speed', 'value', place);
    check(speed?.label === 'micro_batch_size ' + size, 'whatif: series by micro-batch size');
    checkValues(xs(speed), points.map((point) => Number(point.values[0].replace('x', ''))), 'whatif, factors');
    checkValues(ys(speed), points.map((point) => point.speed), 'whatif, speeds');
    checkValues(ys(seriesOf('bandwidth', 'Step time', 'high', place)),
      points.map((point) => point.point.step_time_high_s), 'whatif, step time, high');
  }
  const bars = charts.find((one) => one.section.includes('data_parallel') && one.title === 'Step time');
  check(JSON.stringify(bars?.labels) === JSON.stringify(names.points.map((point) => point.values[0])), 'whatif, names');
  checkValues(bars?.series[0].data, names.points.map((point) => point.point.step_time_s), 'whatif, bars');
}

function checkTornado() {
  const tornado = result('tornado');
  const bars = tornado.bars.filter((bar) => bar.less.point.reason || bar.more.point.reason ||
    Math.max(Math.abs(bar.less.speed - 1), Math.abs(bar.more.speed - 1)) >= 5e-5).slice(0, 12);
  const chart = charts.find((one) => one.title === 'What the speed depends on');
  check(bars.length > 3 && JSON.stringify(chart?.labels) ===
    JSON.stringify(bars.map((bar) => bar.path.replace('cluster.', ''))), 'tornado, inputs');
  for (const [place, side] of ['less', 'more'].entries()) {
    bars.forEach((bar, i) => {
      const drawnBar = chart.series[place].data[i];
      if (bar[side].point.reason) return check(drawnBar === null || drawnBar.every((end) => end === null),
        `tornado, a value that breaks a rule: ${JSON.stringify(drawnBar)}`);
      const change = bar[side].speed - 1;
      checkValues(drawnBar, [Math.min(change, 0), Math.max(change, 0)], `tornado, ${bar.path}, ${side}`);
    });
  }
}

function checkTechniques() {
  const curves = result('techniques');
  curves.techniques.forEach((curve, i) => {
    const speedUps = curve.points.map((point) => point.point.reason ? null : point.point.speed_up);
    const line = seriesOf('Each technique alone', 'Speed-up', 'value', i);
    check(line?.label === curve.technique, 'techniques: names');
    checkValues(ys(line), speedUps, `techniques, ${curve.technique}`);
  });
}

function checkDiff() {
  const diff = result('diff');
  for (const [title, rows, unit] of [['Time of a step', diff.time_ps, 1e12], ['Memory', diff.memory_bytes, 2 ** 30]]) {
    const chart = charts.find((one) => one.section.startsWith('From ') && one.title === title);
    const before = rows.reduce((sum, row) => sum + row.before, 0), after = rows.reduce((sum, row) => sum + row.after, 0);
    const totals = chart.series.find((one) => one.role === 'total').data.filter((bar) => bar !== null && bar[1]);
    checkValues(totals.map((bar) => bar[1]), [before / unit, after / unit], `diff, ${title}, totals`);
    let at = before / unit, sum = 0;
    chart.labels.slice(1, -1).forEach((label, i) => {
      const series = chart.series.find((one) => one.role !== 'total' && one.data[i + 1] !== null);
      const change = series.changes[i + 1];
      checkValues(series.data[i + 1], [Math.min(at, at + change), Math.max(at, at + change)], `diff, ${title}, ${label}`);
      at += change;
      sum += change;
    });
    checkValues([sum], [(after - before) / unit], `diff, ${title}: the bars sum to the change`);
  }
}

function checkRuns() {
  const record = result('record'), explanation = result('explanation'), rows = result('rows').rows;
  const memory = charts.find((one) => one.section.startsWith('Simulated step') && one.title === 'Memory by what it holds');
  checkValues(memory.series.filter((one) => one.role === 'value').map((one) => one.data[0]),
    memory.series.filter((one) => one.role === 'value').map((one) => record.ranks[0].memory[one.label] / 2 ** 30),
    'record, memory');
  check(memory.series.some((one) => one.role === 'limit' && one.data[0] === record.memory.allowed_bytes / 2 ** 30),
    'record: the limit');
  const time = charts.find((one) => one.section.startsWith('Where the step') && one.title === 'Time of a step');
  checkValues(time.labels.map((_, i) => time.series.reduce((sum, one) => sum + one.data[i], 0)),
    time.labels.map(() => explanation.step_ps / 1e12), 'explanation: parts sum to the step');
  const runs = rows.filter((row) => row.predicted_step_time_s && row.measured_step_time_s);
  checkValues(ys(seriesOf('published runs', 'Step time')), runs.map((row) => row.predicted_step_time_s), 'predicted');
  checkValues(xs(seriesOf('published runs', 'Step time')), runs.map((row) => row.measured_step_time_s), 'measured');
}

async function checkScreen(browser, width, scheme) {
  const what = `${width} px, ${scheme}`;
  const page = await browser.open(path, { width, scheme });
  const [content, screen] = await page.evaluate('[document.documentElement.scrollWidth, window.innerWidth]');
  check(content <= screen, `${what}: the page is ${content} px wide`);
  check(page.requests.length === 1 && page.requests[0] === page.url, `${what}: requests ${page.requests}`);
  check(page.complaints.length === 0, `${what}: ${page.complaints.join('; ')}`);
  const shown = await page.evaluate(drawn);
  check(shown.length >= 25, `${what}: ${shown.length} charts`);
  for (const chart of shown) {
    const name = `${what}: ${chart.section}, ${chart.title}`;
    check(chart.painted > 1500 && chart.colours >= 4, `${name}: ${chart.painted} pixels, ${chart.colours} colours`);
    check(chart.width > 200 && chart.width <= width && chart.height > 150, `${name}: ${chart.width} x ${chart.height}`);
    check(chart.rows > 0, `${name} has no table`);
  }
  const [ground, title, injected] = await page.evaluate(`[getComputedStyle(document.body).backgroundColor,
    document.querySelector('h1').textContent, document.querySelectorAll('h1 b').length]`);
  const bright = Number(ground.match(/\d+/)[0]) > 127;
  check(bright === (scheme === 'light'), `${what}: the ground is ${ground}`);
  check(title === '</script><b>Title & "more"</b>' && injected === 0, `${what}: the title is ${title}`);
  return page;
}

async function checkChanges(page) {
  const inks = 'Chart.getChart(document.querySelector("canvas")).data.datasets.map((one) => one.borderColor).join()';
  const light = await page.evaluate(inks);
  await page.scheme('dark');
  await page.settle();
  check(light !== await page.evaluate(inks), 'the charts do not follow a change of the colour scheme');
  const folded = 'document.querySelectorAll("details:not([open])").length';
  check(await page.evaluate(folded) > 0, 'long tables are not folded');
  await page.evaluate(`window.unfolded = -1; window.addEventListener('beforeprint', () => {
    window.unfolded = ${folded}; window.printed = ${inks}; })`);
  const pdf = await page.pdf();
  check(pdf.subarray(0, 5).toString() === '%PDF-' && pdf.length > 50000, `the PDF has ${pdf.length} bytes`);
  check(await page.evaluate('window.unfolded') === 0, 'tables are folded in print');
  check(await page.evaluate('window.printed') === light, 'charts are not printed in light colours');
  check(await page.evaluate(folded) > 0, 'tables stay unfolded after printing');
}

// The page's policy stops what the page itself does not do.
async function checkPolicy(page) {
  const before = page.requests.length;
  const outcome = await page.evaluate(`Promise.race([
    fetch('https://example.com/').then(() => 'loaded', () => 'refused'),
    new Promise((done) => setTimeout(() => done('nothing'), 5000))])`);
  check(outcome === 'refused', `fetch: ${outcome}`);
  check(page.complaints.some((text) => text.includes('Content Security Policy')), 'no violation was reported');
  check(page.requests.slice(before).length === 0, `requests ${page.requests.slice(before)}`);
}

const browser = new Chromium(binary);
try {
  for (const width of [375, 1920]) {
    for (const scheme of ['light', 'dark']) {
      const page = await checkScreen(browser, width, scheme);
      if (width !== 1920 || scheme !== 'light') continue;
      charts = await page.evaluate(drawn);
      checkScaling('scaling-h100');
      checkScaling('scaling-a100');
      checkCapacity();
      checkSweeps();
      checkTornado();
      checkTechniques();
      checkDiff();
      checkRuns();
      await checkChanges(page);
      await checkPolicy(page);
    }
  }
} finally {
  await browser.close();
}
for (const failure of failures) console.error(failure);
console.log(`${checks} checks, ${failures.length} failed`);
process.exit(failures.length === 0 ? 0 : 1);
