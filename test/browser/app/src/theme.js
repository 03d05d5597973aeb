export const theme = {name: 'light', title: 'A light theme'};
