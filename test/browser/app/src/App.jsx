import {theme} from './theme.js';

export default function App() {
  return <main data-theme={theme.name}><h1>{theme.title}</h1></main>;
}
