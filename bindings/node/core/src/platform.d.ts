/** The platform as its package is named; the file itself is the launcher's platform.js. */
export declare function platform(): string;
