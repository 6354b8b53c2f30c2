// The chosen colours, set before the first paint.
try {
  const chosen = localStorage.getItem('teamd-theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
} catch { /* storage is blocked: the system decides */ }
