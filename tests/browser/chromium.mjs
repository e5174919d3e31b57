// Headless Chromium, driven over its DevTools protocol through a pair of pipes.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage',
  '--hide-scrollbars', '--remote-debugging-pipe', 'about:blank'];

export class Chromium {
  constructor(binary) {
    this.profile = mkdtempSync(join(tmpdir(), 'orrery-browser-'));
    this.process = spawn(binary, [`--user-data-dir=${this.profile}`, ...flags],
      { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
    this.waiting = new Map();
    this.listeners = [];
    this.next = 1;
    this.rest = '';
    this.ended = new Promise((resolve) => this.process.once('exit', resolve));
    this.process.stdio[4].setEncoding('utf8');
    this.process.stdio[4].on('data', (text) => this.receive(text));
    this.process.once('exit', (code) => {
      for (const { reject } of this.waiting.values()) reject(new Error(`chromium ended with ${code}`));
    });
  }

  receive(text) {
    const parts = (this.rest + text).split('\0');
    this.rest = parts.pop();
    for (const part of parts) {
      const message = JSON.parse(part);
      const waiting = this.waiting.get(message.id);
      this.waiting.delete(message.id);
      if (waiting && message.error) waiting.reject(new Error(`${waiting.method}: ${message.error.message}`));
      else if (waiting) waiting.resolve(message.result);
      else for (const listener of this.listeners) listener(message);
    }
  }

  send(method, params = {}, sessionId = undefined) {
    const id = this.next++;
    this.process.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + '\0');
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject, method }));
  }

  // Opens a file, and collects what it requests and complains about.
  async open(path, { width = 1280, height = 900, scheme = 'light', before = '' } = {}) {
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' });
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    const page = new Page(this, sessionId);
    this.listeners.push((message) => message.sessionId === sessionId && page.hear(message));
    for (const domain of ['Page', 'Runtime', 'Network', 'Log', 'Audits']) await page.send(`${domain}.enable`);
    await page.size(width, height);
    await page.scheme(scheme);
    if (before) await page.send('Page.addScriptToEvaluateOnNewDocument', { source: before });
    const loaded = new Promise((resolve) => { page.loaded = resolve; });
    page.url = pathToFileURL(path).href;
    await page.send('Page.navigate', { url: page.url });
    await loaded;
    await page.settle();
    return page;
  }

  async close() {
    await this.send('Browser.close').catch(() => {});
    await this.ended;
    rmSync(this.profile, { recursive: true, force: true });
  }
}

class Page {
  constructor(browser, session) {
    this.browser = browser;
    this.session = session;
    this.requests = [];
    this.complaints = [];
  }

  send(method, params = {}) {
    return this.browser.send(method, params, this.session);
  }

  hear({ method, params }) {
    if (method === 'Page.loadEventFired') this.loaded?.();
    if (method === 'Network.requestWillBeSent') this.requests.push(params.request.url);
    if (method === 'Runtime.exceptionThrown') {
      this.complaints.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
    }
    if (method === 'Runtime.consoleAPICalled' && ['error', 'warning', 'assert'].includes(params.type)) {
      this.complaints.push(params.args.map((one) => one.value ?? one.description).join(' '));
    }
    if (method === 'Log.entryAdded' && ['error', 'warning'].includes(params.entry.level)) {
      this.complaints.push(params.entry.text);
    }
    if (method === 'Audits.issueAdded') this.complaints.push(`${params.issue.code} ${JSON.stringify(params.issue.details)}`);
  }

  async evaluate(expression) {
    const { result, exceptionDetails } = await this.send('Runtime.evaluate',
      { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  size(width, height) {
    return this.send('Emulation.setDeviceMetricsOverride',
      { width, height, deviceScaleFactor: 1, mobile: false, screenWidth: width, screenHeight: height });
  }

  scheme(value) {
    return this.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value }] });
  }

  // Two frames, so that layout and observers of sizes have run.
  settle() {
    return this.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))');
  }

  async screenshot({ full = true } = {}) {
    const { data } = await this.send('Page.captureScreenshot', { format: 'png', captureBeyondViewport: full,
      ...(full ? { clip: { x: 0, y: 0, scale: 1, ...await this.evaluate(
        '({width: document.documentElement.clientWidth, height: document.documentElement.scrollHeight})') } } : {}) });
    return Buffer.from(data, 'base64');
  }

  async pdf() {
    const { data } = await this.send('Page.printToPDF', { printBackground: true, preferCSSPageSize: true });
    return Buffer.from(data, 'base64');
  }
}
