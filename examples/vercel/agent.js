// The agent: it works in a sandbox of its own and says in lines what it does. In the place
// of these steps would be a model, and what it asks for.
'use strict';
const fs = require('fs');
const { execFileSync } = require('child_process');

const task = process.argv[2] || 'nothing';
const pause = () => new Promise((done) => setTimeout(done, 300));

(async () => {
  console.log(`task: ${task}`);
  await pause();
  fs.writeFileSync('report.txt', `${task}\n`);
  console.log('wrote report.txt');
  await pause();
  console.log(`it has ${execFileSync('wc', ['-c', 'report.txt'], { encoding: 'utf8' }).split(' ')[0]} bytes`);
  console.log('done');
})();
