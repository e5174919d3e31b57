// report_accessibility.mjs CHROMIUM PAGE AXE: axe-core finds nothing serious in the page, light and dark, narrow and wide.
import { readFileSync } from 'node:fs';
import { Chromium } from './chromium.mjs';

const [binary, path, axe] = process.argv.slice(2);
const library = readFileSync(axe, 'utf8');
const browser = new Chromium(binary);
let failures = 0, passes = 0;
try {
  for (const scheme of ['light', 'dark']) {
    for (const width of [375, 1920]) {
      const page = await browser.open(path, { width, scheme });
      await page.evaluate(library + '; true');
      const result = await page.evaluate(`axe.run(document, {resultTypes: ['violations']}).then((found) => ({
        passes: found.passes.length,
        violations: found.violations.map(({id, impact, help, nodes}) =>
          ({id, impact, help, first: nodes[0].html.slice(0, 160), nodes: nodes.length}))}))`);
      passes += result.passes;
      for (const one of result.violations) {
        if (!['serious', 'critical'].includes(one.impact)) continue;
        ++failures;
        console.error(`${scheme}, ${width} px: ${one.id} (${one.impact}), ${one.nodes} x: ${one.help}: ${one.first}`);
      }
    }
  }
} finally {
  await browser.close();
}
if (passes === 0) throw new Error('axe-core checked nothing');
console.log(`${passes} rules passed, ${failures} serious or critical ones failed`);
process.exit(failures === 0 ? 0 : 1);
