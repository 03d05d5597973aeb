// A small agent in one file, for Node 18 and later, without packages: it asks a model that
// speaks OpenAI's chat API what to do, does it with four tools, and says what happens in a
// line of JSON each. It needs no key: skete gives its sandbox the address of a model.
//
//   skete run --program 'node agent.js' --events jsonl --inject examples/node-agent 'Write a haiku into haiku.txt'
'use strict';
const fs = require('fs');
const path = require('path');
const { spawnSync } = require('child_process');

const MAX_STEPS = Number(process.env.MAX_STEPS || 20);
const OUTPUT_MAX = 20000;
const url = process.env.OPENAI_BASE_URL + '/chat/completions';
const task = process.env.SKETE_TASK || process.argv.slice(2).join(' ');

const say = (event) => console.log(JSON.stringify(event));

const tools = {
  write_file: {
    about: 'Writes a file, with the directories above it.',
    takes: { path: 'string', content: 'string' },
    run: ({ path: name, content }) => {
      fs.mkdirSync(path.dirname(name), { recursive: true });
      fs.writeFileSync(name, content);
      return `wrote ${content.length} characters`;
    },
  },
  read_file: {
    about: 'Returns what is in a file.',
    takes: { path: 'string' },
    run: ({ path: name }) => fs.readFileSync(name, 'utf8'),
  },
  list_files: {
    about: 'Lists a directory.',
    takes: { path: 'string' },
    run: ({ path: name }) => fs.readdirSync(name || '.').join('\n'),
  },
  run_command: {
    about: 'Runs a line of the shell and returns its output and exit code.',
    takes: { command: 'string' },
    run: ({ command }) => {
      const done = spawnSync('sh', ['-c', command], { encoding: 'utf8', timeout: 120000 });
      return `${done.stdout || ''}${done.stderr || ''}\nexit code ${done.status}`;
    },
  },
};

const specs = Object.entries(tools).map(([name, tool]) => ({
  type: 'function',
  function: {
    name,
    description: tool.about,
    parameters: {
      type: 'object',
      required: Object.keys(tool.takes),
      properties: Object.fromEntries(Object.entries(tool.takes).map(([key, type]) => [key, { type }])),
    },
  },
}));

async function ask(messages) {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${process.env.OPENAI_API_KEY}` },
    body: JSON.stringify({ model: process.env.MODEL || 'default', messages, tools: specs }),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`the model answered ${answer.status}: ${text.slice(0, 500)}`);
  return JSON.parse(text).choices[0].message;
}

function carryOut(call) {
  const { name, arguments: args } = call.function;
  try {
    if (!tools[name]) throw new Error(`there is no tool ${name}`);
    return String(tools[name].run(JSON.parse(args || '{}'))).slice(0, OUTPUT_MAX);
  } catch (err) {
    return `Error: ${err.message}`;
  }
}

async function main() {
  if (!process.env.OPENAI_BASE_URL) throw new Error('this sandbox may use no model');
  const messages = [
    { role: 'system', content: `You work on a computer, in ${process.cwd()}. Do what is asked with your tools, then say in one sentence what you did.` },
    { role: 'user', content: task },
  ];
  for (let step = 1; step <= MAX_STEPS; step++) {
    const reply = await ask(messages);
    messages.push(reply);
    if (!reply.tool_calls || reply.tool_calls.length === 0) {
      say({ done: true, steps: step, result: reply.content });
      return;
    }
    for (const call of reply.tool_calls) {
      say({ step, tool: call.function.name, args: call.function.arguments });
      const output = carryOut(call);
      say({ step, output: output.slice(0, 500) });
      messages.push({ role: 'tool', tool_call_id: call.id, content: output });
    }
  }
  throw new Error(`it is not done after ${MAX_STEPS} steps`);
}

main().catch((err) => {
  say({ error: err.message });
  process.exitCode = 1;
});
