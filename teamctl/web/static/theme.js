// The chosen colours, set before the first paint; without a choice the system decides.
try {
  const chosen = localStorage.getItem('teamd-theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
} catch { /* storage is blocked: the system decides */ }
