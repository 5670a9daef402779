// A person at a headless Chromium: opens an address, types a name where a login is wanted, and agrees to what is asked, until
// the page says that all is done. Arguments: the browser, whether it may have a sandbox, the name, the address.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [, , chromium, sandbox, name, address] = process.argv;
const profile = mkdtempSync(join(tmpdir(), 'pumice-browser-'));
const flags = ['--headless', '--disable-gpu', '--remote-debugging-pipe', '--no-first-run', `--user-data-dir=${profile}`];
if (sandbox !== 'sandbox') flags.push('--no-sandbox');
const browser = spawn(chromium, [...flags, 'about:blank'], { stdio: ['ignore', 'ignore', 'inherit', 'pipe', 'pipe'] });
const finish = (code) => {
  browser.once('exit', () => { rmSync(profile, { recursive: true, force: true, maxRetries: 5 }); process.exit(code); });
  browser.kill('SIGKILL');
};

let last = 0;
let text = '';
const waiting = new Map();
browser.stdio[4].on('data', (bytes) => {
  text += bytes;
  for (let end = text.indexOf('\0'); end >= 0; end = text.indexOf('\0')) {
    const message = JSON.parse(text.slice(0, end));
    text = text.slice(end + 1);
    if (waiting.has(message.id)) waiting.get(message.id)(message.result ?? {});
    waiting.delete(message.id);
  }
});
const call = (method, params = {}, sessionId = undefined) => new Promise((resolve) => {
  last += 1;
  waiting.set(last, resolve);
  browser.stdio[3].write(`${JSON.stringify({ id: last, method, params, sessionId })}\0`);
});

const { targetId } = await call('Target.createTarget', { url: 'about:blank' });
const { sessionId } = await call('Target.attachToTarget', { targetId, flatten: true });
await call('Page.enable', {}, sessionId);
await call('Page.navigate', { url: address }, sessionId);

// What a person would do with the page that is there.
const act = `(() => {
  const said = document.body?.innerText ?? '';
  if (/You are logged in|Sign-in Success|was refused/i.test(said)) return 'done: ' + said.trim().split('\\n')[0];
  if (document.readyState !== 'complete' || window.acted) return 'waiting';
  const form = document.querySelector('form');
  if (!form) return 'waiting: ' + location.href + ' ' + said.slice(0, 200);
  const field = (wanted) => form.querySelector('input[name=' + wanted + ']');
  if (field('login')) field('login').value = ${JSON.stringify(name)};
  if (field('password')) field('password').value = 'any';
  window.acted = true;
  const button = form.querySelector('button[type=submit]:not([name=abort])');
  button ? button.click() : form.submit();
  return 'acted: ' + said.trim().split('\\n')[0];
})()`;
let before = '';
for (let look = 0; look < 600; look += 1) {
  const { result } = await call('Runtime.evaluate', { expression: act }, sessionId);
  const said = result?.value ?? 'no page';
  if (said !== before) console.log(said);
  before = said;
  if (said.startsWith('done')) finish(0);
  await new Promise((resolve) => setTimeout(resolve, 100));
}
console.log('gave up');
finish(1);
