import {createRoot} from 'react-dom/client';
import App from './App.jsx';
import './theme.css';

// A page that was loaded once and never again keeps this.
window.loadedAt = performance.timeOrigin;
createRoot(document.getElementById('root')).render(<App />);
