import {useState} from 'react';

function seen() {
  try { return `read ${parent.document.title}`; } catch (e) { return e.name; }
}

export default function App() {
  const [clicks, setClicks] = useState(0);
  return <main><p id="x">old text</p><p id="parent">{seen()}</p><button id="clicks" onClick={() => setClicks(clicks + 1)}>{clicks}</button></main>;
}
